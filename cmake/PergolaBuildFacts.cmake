# Facts that `pergola --version` prints: commit, compiler, build type. The commit is read at configure time.
find_package(Git QUIET)
set(PERGOLA_COMMIT "unknown")
if(Git_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                  OUTPUT_VARIABLE PERGOLA_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/build_facts.h.in ${CMAKE_BINARY_DIR}/generated/build_facts.h @ONLY)
