# cmake -DOUTPUT=file.cc -DFILES=a;b -P embed_kernels.cmake: the files' texts as string literals (opencl/kernel_sources.h).
set(text "#include \"backend/opencl/kernel_sources.h\"\n\nnamespace pergola::opencl {\n\nnamespace {\n\nconstexpr KernelFile kFiles[] = {\n")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  file(READ ${path} content)
  string(APPEND text "    {\"${name}\", R\"__kernel__(${content})__kernel__\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const KernelFile> kernel_files() {\n  return kFiles;\n}\n\n}  // namespace pergola::opencl\n")
file(WRITE ${OUTPUT} "${text}")
