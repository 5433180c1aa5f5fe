// Prints the table of OpenCL kernel variants, one a line, for tools/xe_check.sh: file, build options, whether the
// file's kernels ask for 256 registers, matrix instructions in the loop over tiles, and the ceilings of vector issue
// slots a weight (mul1, mcg, 3inst).
#include <cstdio>

#include "backend/opencl/variants.h"

int main() {
  using namespace pergola::opencl;
  const auto print = [](const char* file, const Variant& v, int slab, bool wide) {
    std::printf("%s|-DROWS=%d -DSLAB=%d -DARITHMETIC=%d -DBYTES=%d|%d|%d|%g|%g|%g\n", file, v.rows, slab,
                static_cast<int>(v.arithmetic), v.bytes, wide ? 256 : 128, v.dpas, v.slots_mul1, v.slots_mcg,
                v.slots_three_inst);
  };
  for (const Variant& variant : kVariants) {
    print("linear.cl", variant, variant.slab, variant.wide);
    print("moe.cl", variant, variant.slab, wide_experts(variant));
    if (variant.rows == 1) print("moe_decode.cl", variant, kDecodeDownSlab, false);
  }
}
