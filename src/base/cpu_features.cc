#include "base/cpu_features.h"

#include <array>
#include <cstring>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pergola {
namespace {

constexpr std::array<std::string_view, 4> kNames{"scalar", "avx2", "avx512", "amx"};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool bit(unsigned value, int index) {
  return ((value >> index) & 1u) != 0;
}

/// Which register files the operating system saves (XCR0).
unsigned long long saved_state(const Registers& leaf1) {
  if (!bit(leaf1.ecx, 27)) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32) | low;
}

/// Linux hands out the tile registers only on request.
bool request_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

void detect_levels(CpuFeatures& features) {
  const Registers leaf1 = cpuid(1, 0), leaf7 = cpuid(7, 0), leaf7_1 = cpuid(7, 1);
  const unsigned long long saved = saved_state(leaf1);
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xE6) == 0xE6, tiles = (saved & 0x60000) == 0x60000;
  if (!(ymm && bit(leaf7.ebx, 5) && bit(leaf1.ecx, 12) && bit(leaf1.ecx, 29) && bit(leaf7.ebx, 8))) return;
  features.best = Isa::avx2;
  features.avx_vnni = bit(leaf7_1.eax, 4);
  const bool avx512 = zmm && bit(leaf7.ebx, 16) && bit(leaf7.ebx, 17) && bit(leaf7.ebx, 28) && bit(leaf7.ebx, 30) &&
                      bit(leaf7.ebx, 31) && bit(leaf7.ecx, 1) && bit(leaf7.ecx, 6) && bit(leaf7.ecx, 8) &&
                      bit(leaf7.ecx, 11);
  if (!avx512) return;
  features.best = Isa::avx512;
  features.avx512_fp16 = bit(leaf7.edx, 23);
  const bool amx = tiles && features.avx512_fp16 && bit(leaf7.edx, 24) && bit(leaf7.edx, 25) && request_tiles();
  if (!amx) return;
  features.best = Isa::amx;
  features.amx_bf16 = bit(leaf7.edx, 22);
}

std::string processor_name() {
  std::array<unsigned, 12> words{};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    const Registers r = cpuid(0x80000002u + leaf, 0);
    const std::array<unsigned, 4> part{r.eax, r.ebx, r.ecx, r.edx};
    std::memcpy(words.data() + leaf * 4, part.data(), sizeof part);
  }
  std::string name(reinterpret_cast<const char*>(words.data()), sizeof words);
  name = name.c_str();  // up to the first zero
  const auto first = name.find_first_not_of(' ');
  return first == std::string::npos ? std::string("x86-64 processor")
                                    : name.substr(first, name.find_last_not_of(' ') - first + 1);
}

#else

void detect_levels(CpuFeatures&) {}

/// Arm kernels list no marketing name; the first line that names one wins.
std::string processor_name() {
  std::ifstream facts("/proc/cpuinfo");
  for (std::string line; std::getline(facts, line);) {
    for (const char* key : {"model name", "Model", "Hardware"}) {
      if (line.rfind(key, 0) == 0 && line.find(':') != std::string::npos) return line.substr(line.find(':') + 2);
    }
  }
  return "processor";
}

#endif

CpuFeatures detect() {
  CpuFeatures features;
  detect_levels(features);
  features.model = processor_name();
  return features;
}

}  // namespace

std::string_view name_of(Isa isa) {
  return kNames[static_cast<std::size_t>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace pergola
