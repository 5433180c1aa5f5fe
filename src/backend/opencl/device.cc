#include "backend/opencl/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/opencl/kernel_sources.h"
#include "base/error.h"
#include "base/units.h"

namespace pergola::opencl {

namespace {

/// What a work-group of the largest kernel keeps in local memory.
constexpr std::uint64_t kLocalBytes = 48 * 1024;

DeviceFacts choose(int index) {
  std::string why_none;
  std::vector<DeviceFacts> devices = find_devices(why_none);
  if (devices.empty()) fail({.field = "--backend"}, "there is no OpenCL device: {}", why_none);
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) {
    fail({.field = "--device"}, "there is no OpenCL device {}: this machine has {} (see pergola devices)", index,
         devices.size());
  }
  DeviceFacts facts = std::move(devices[static_cast<std::size_t>(index)]);
  if (facts.local_bytes < kLocalBytes) {
    fail({.field = "--device"}, "{} has {} of local memory a work-group; the OpenCL kernels need {}", facts.name,
         human_bytes(static_cast<double>(facts.local_bytes)), human_bytes(static_cast<double>(kLocalBytes)));
  }
  return facts;
}

/// HAVE_* options of the special instructions that the device says it has.
std::string special_instructions(const DeviceFacts& facts) {
  if (facts.platform_name.find("NVIDIA") != std::string::npos) return "-cl-std=CL1.2 -DHAVE_PTX";
  std::string options;
  if (facts.has("cl_khr_integer_dot_product")) options += " -DHAVE_DOT";
  if (facts.gpu && facts.has("cl_intel_required_subgroup_size") && facts.has("cl_khr_subgroups")) {
    options += " -DHAVE_SUBGROUPS";
    if (facts.has("cl_intel_subgroup_matrix_multiply_accumulate") && facts.has("cl_intel_subgroup_local_block_io"))
      options += " -DHAVE_DPAS";
  }
  return (options.empty() ? "-cl-std=CL1.2" : "-cl-std=CL3.0") + options;
}

bool is_pocl(const DeviceFacts& facts) {
  return facts.platform_name == "Portable Computing Language";
}

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  if (size > 0) clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

std::vector<unsigned char> binary_of(cl_program program) {
  std::size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS) return {};
  std::vector<unsigned char> binary(size);
  unsigned char* pointer = binary.data();
  if (size == 0 || clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof pointer, &pointer, nullptr) != CL_SUCCESS)
    return {};
  return binary;
}

}  // namespace

Device::Device(int index, std::optional<ProgramCache> cache)
    : facts_(choose(index)),
      cache_(cache             ? *cache
             : is_pocl(facts_) ? ProgramCache({})
                               : ProgramCache(default_cache_folder())) {
  cl_int error = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(facts_.platform), 0};
  context_.reset(clCreateContext(properties, 1, &facts_.id, nullptr, nullptr, &error));
  check(error, "opening " + facts_.name);
  // An in-order queue: operations run one after the other without a host wait between them.
  queue_.reset(clCreateCommandQueueWithProperties(context_.get(), facts_.id, nullptr, &error));
  check(error, "opening a queue on " + facts_.name);
  base_options_ = special_instructions(facts_);
  reserve_work(256);
  probe_special_instructions();
}

void Device::probe_special_instructions() {
  if (base_options_.find("-DHAVE_") == std::string::npos) return;
  constexpr std::array kInstructions{"integer dot products", "sub-group broadcasts", "matrix units (bytes)",
                                     "matrix units (halves)"};
  std::array<std::uint32_t, kInstructions.size() * 64> mismatches{};
  const Memory memory = allocate(sizeof mismatches, "a check");
  const std::string options = base_options_ + " -DKINDS=0 -DROWS=8 -DSLAB=512 -DARITHMETIC=3";
  launch(kernel("probe.cl", "probe", options), {{1, 1, 1}, {64, 1, 1}}, memory.get());
  check(clEnqueueReadBuffer(queue_.get(), memory.get(), CL_TRUE, 0, sizeof mismatches, mismatches.data(), 0, nullptr,
                            nullptr),
        "checking special instructions");
  for (std::size_t i = 0; i < kInstructions.size(); ++i) {
    const auto first = mismatches.begin() + static_cast<std::ptrdiff_t>(64 * i);
    if (std::any_of(first, first + 64, [](std::uint32_t count) { return count != 0; })) {
      fail({}, "{} (driver {}) gives wrong results for {}: they differ from plain arithmetic", facts_.name,
           facts_.driver, kInstructions[i]);
    }
  }
  matrix_units_ = base_options_.find("-DHAVE_DPAS") != std::string::npos;
}

Program Device::build(std::string_view file, const std::string& options) {
  const std::string source = kernel_source(file);
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", facts_.platform_name, facts_.name, facts_.version,
                                      facts_.driver, file, options, source);
  cl_int error = CL_SUCCESS;
  if (const auto binary = cache_.find(key)) {
    const unsigned char* data = binary->data();
    const std::size_t size = binary->size();
    cl_int status = CL_SUCCESS;
    Program program(clCreateProgramWithBinary(context_.get(), 1, &facts_.id, &size, &data, &status, &error));
    if (error == CL_SUCCESS && status == CL_SUCCESS &&
        clBuildProgram(program.get(), 1, &facts_.id, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
      return program;
    // A driver may refuse what it wrote itself, after an update that kept its version: compile, and replace the entry.
  }
  const char* text = source.c_str();
  Program program(clCreateProgramWithSource(context_.get(), 1, &text, nullptr, &error));
  check(error, "reading kernels");
  error = clBuildProgram(program.get(), 1, &facts_.id, options.c_str(), nullptr, nullptr);
  if (error != CL_SUCCESS) {
    fail({}, "{} (driver {}) cannot build {} with \"{}\": {}\n{}", facts_.name, facts_.driver, file, options,
         name_of_error(error), build_log(program.get(), facts_.id));
  }
  if (cache_.keeps())
    if (const auto binary = binary_of(program.get()); !binary.empty()) cache_.keep(key, binary);
  return program;
}

const Kernel& Device::kernel(std::string_view file, std::string_view name, const std::string& options) {
  const std::string program_key = fmt::format("{} {}", file, options);
  const std::string kernel_key = fmt::format("{} {}", program_key, name);
  if (const auto found = kernels_.find(kernel_key); found != kernels_.end()) return found->second;
  auto program = programs_.find(program_key);
  if (program == programs_.end()) program = programs_.emplace(program_key, build(file, options)).first;
  cl_int error = CL_SUCCESS;
  Kernel kernel{.handle = KernelHandle(clCreateKernel(program->second.get(), std::string(name).c_str(), &error)),
                .name = std::string(name)};
  check(error, fmt::format("preparing kernel {}", name));
  check(clGetKernelWorkGroupInfo(kernel.handle.get(), facts_.id, CL_KERNEL_WORK_GROUP_SIZE,
                                 sizeof kernel.most_work_items, &kernel.most_work_items, nullptr),
        fmt::format("asking for the size of kernel {}", name));
  return kernels_.emplace(kernel_key, std::move(kernel)).first->second;
}

void Device::check_argument(cl_int code, const Kernel& kernel, cl_uint index) {
  if (code != CL_SUCCESS) fail_opencl(code, fmt::format("setting argument {} of kernel {}", index, kernel.name));
}

void Device::enqueue(const Kernel& kernel, const Grid& grid) {
  std::array<std::size_t, 3> sizes;
  for (std::size_t i = 0; i < 3; ++i) sizes[i] = grid.groups[i] * grid.items[i];
  if (sizes[0] == 0 || sizes[1] == 0 || sizes[2] == 0) return;
  const cl_int code = clEnqueueNDRangeKernel(queue_.get(), kernel.handle.get(), 3, nullptr, sizes.data(),
                                             grid.items.data(), 0, nullptr, nullptr);
  if (code != CL_SUCCESS) {
    fail_opencl(code, fmt::format("running kernel {} with {} x {} x {} work-items a group", kernel.name, grid.items[0],
                                  grid.items[1], grid.items[2]));
  }
  ++counters_.launches;
}

Memory Device::allocate(std::size_t bytes, std::string_view what) {
  bytes = std::max<std::size_t>(bytes, 16);
  if (bytes > facts_.most_allocation_bytes) {
    fail({}, "{} needs {} in one piece; {} allocates at most {}", what, human_bytes(static_cast<double>(bytes)),
         facts_.name, human_bytes(static_cast<double>(facts_.most_allocation_bytes)));
  }
  const std::string doing = fmt::format("allocating {} for {}", human_bytes(static_cast<double>(bytes)), what);
  cl_int error = CL_SUCCESS;
  Memory memory(clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes, nullptr, &error));
  check(error, doing);
  // Drivers allocate when memory is first used: clearing it finds out now.
  const cl_uint zero = 0;
  const std::size_t unit = bytes % 4 == 0 ? 4 : 1;
  check(clEnqueueFillBuffer(queue_.get(), memory.get(), &zero, unit, 0, bytes, 0, nullptr, nullptr), doing);
  return memory;
}

void Device::synchronize() {
  count_wait();
  check(clFinish(queue_.get()), "waiting for " + facts_.name);
}

void Device::reserve_work(std::size_t bytes) {
  if (bytes <= work_bytes_) return;
  if (work_) check(clFinish(queue_.get()), "waiting for " + facts_.name);
  work_.reset();
  work_ = allocate(bytes, "the work space of operations");
  work_bytes_ = bytes;
}

}  // namespace pergola::opencl
