# The OpenCL folder, or the stub that says it was not built. Kernels become part of the program.
if(NOT PERGOLA_OPENCL_FOUND)
  target_sources(backend PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/opencl_stub/opencl_stub.cc)
  return()
endif()
file(GLOB opencl_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/opencl/*.cc)
file(GLOB opencl_kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/opencl/kernels/*.cl ${CMAKE_CURRENT_SOURCE_DIR}/opencl/kernels/*.h)
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/opencl_kernels.cc)
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded} "-DFILES=${opencl_kernels}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake
  DEPENDS ${opencl_kernels} ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake VERBATIM)
add_library(backend_opencl STATIC ${opencl_sources} ${embedded})
target_link_libraries(backend_opencl PUBLIC base trellis OpenCL::OpenCL)
pergola_room_includes(backend_opencl backend)
pergola_compile_options(backend_opencl)
target_link_libraries(backend PUBLIC backend_opencl)
target_compile_definitions(backend PUBLIC PERGOLA_HAS_OPENCL)
