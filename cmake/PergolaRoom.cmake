# pergola_room(NAME DEPENDS ...): one library target from src/NAME/*.cc. Include paths start at the room's parent, and a room sees
# the headers of exactly the rooms it links: each room exports its own directory through a private forwarding tree.
#
# Files ending in _avx2.cc, _avx512.cc and _amx.cc are compiled for that instruction set on x86-64 and left out elsewhere. They must not
# instantiate templates or inline functions that other files use too: the linker could keep the copy with the wide instructions.

set(PERGOLA_WARNINGS -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(PERGOLA_WERROR)
  list(APPEND PERGOLA_WARNINGS -Werror)
endif()

set(PERGOLA_AVX2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
# GCC 12 reports its own AVX-512 intrinsics as uninitialised (bug 105593).
set(PERGOLA_AVX512_FLAGS -Wno-maybe-uninitialized -Wno-uninitialized ${PERGOLA_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx512vnni -mavx512vbmi -mavx512vbmi2)
set(PERGOLA_AVX512FP16_FLAGS ${PERGOLA_AVX512_FLAGS} -mavx512fp16)
set(PERGOLA_AMX_FLAGS ${PERGOLA_AVX512_FLAGS} -mavx512fp16 -mamx-tile -mamx-int8 -mamx-bf16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(PERGOLA_X86 ON)
endif()

function(pergola_compile_options target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PERGOLA_WARNINGS}>)
  if(PERGOLA_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PERGOLA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${PERGOLA_SANITIZE})
  endif()
endfunction()

# Gives instruction-set files their flags; drops them from OUT on other processors.
function(pergola_isa_sources out)
  set(kept)
  foreach(source IN LISTS ARGN)
    set(flags)
    if(source MATCHES "_avx2\\.cc$")
      set(flags ${PERGOLA_AVX2_FLAGS})
    elseif(source MATCHES "_avx512\\.cc$")
      set(flags ${PERGOLA_AVX512_FLAGS})
    elseif(source MATCHES "_avx512fp16\\.cc$")
      set(flags ${PERGOLA_AVX512FP16_FLAGS})
    elseif(source MATCHES "_amx\\.cc$")
      set(flags ${PERGOLA_AMX_FLAGS})
    endif()
    if(flags AND NOT PERGOLA_X86)
      continue()
    endif()
    if(flags)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
    endif()
    list(APPEND kept ${source})
  endforeach()
  set(${out} ${kept} PARENT_SCOPE)
endfunction()

# A room's headers are reached as "room/header.h" through a folder that holds one link, so that linking a room is what makes its headers visible.
function(pergola_room_includes target room)
  set(tree ${CMAKE_BINARY_DIR}/rooms/${room})
  file(MAKE_DIRECTORY ${tree})
  if(NOT EXISTS ${tree}/${room})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${room} ${tree}/${room} SYMBOLIC)
  endif()
  target_include_directories(${target} PUBLIC ${tree})
endfunction()

function(pergola_room room)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.cc)
  pergola_isa_sources(sources ${sources})
  add_library(${room} STATIC ${sources})
  target_link_libraries(${room} PUBLIC ${ARG_DEPENDS})
  pergola_room_includes(${room} ${room})
  pergola_compile_options(${room})
endfunction()
