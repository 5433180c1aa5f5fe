#include "backend/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>

#include "backend/cuda/check.h"
#include "base/error.h"

namespace pergola::cuda {

namespace {

void check_status(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail({}, "cuBLASLt failed while {} (status {})", doing, static_cast<int>(status));
}

}  // namespace

struct Gemm::Library {
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  void* workspace = nullptr;
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  cublasLtHandle_t context = nullptr;

  /// A product of one shape: what cuBLASLt wants to know and the algorithm that it chose.
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  std::map<std::array<std::int64_t, 3>, Plan> plans;

  template <typename Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) fail({.field = "--backend"}, "the cuBLASLt library has no function {}", name);
  }

  const Plan& plan(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto [at, fresh] = plans.try_emplace({m, n, k});
    Plan& plan = at->second;
    if (!fresh) return plan;
    // In cuBLAS's column-major terms: C [n, m] = A^T B with A [k, n] = w and B [k, m] = x.
    check_status(desc_create(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check_status(desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
                 "describing a product");
    check_status(layout_create(&plan.a, CUDA_R_16F, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n), k),
                 "describing a matrix");
    check_status(layout_create(&plan.b, CUDA_R_16F, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(m), k),
                 "describing a matrix");
    check_status(layout_create(&plan.c, CUDA_R_32F, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(m), n),
                 "describing a matrix");
    cublasLtMatmulPreference_t preference = nullptr;
    check_status(preference_create(&preference), "choosing an algorithm");
    const std::size_t bytes = kWorkspaceBytes;
    check_status(preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
                 "choosing an algorithm");
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        heuristic(context, plan.product, plan.a, plan.b, plan.c, plan.c, preference, 1, &result, &found);
    preference_destroy(preference);
    check_status(status, "choosing an algorithm");
    if (found == 0) fail({}, "cuBLASLt has no algorithm for a product of {} x {} x {}", m, n, k);
    plan.algorithm = result.algo;
    return plan;
  }

  ~Library() {
    for (auto& [shape, plan] : plans) {
      if (plan.product != nullptr) desc_destroy(plan.product);
      for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c}) {
        if (layout != nullptr) layout_destroy(layout);
      }
    }
    if (context != nullptr) destroy(context);
    if (workspace != nullptr) cudaFree(workspace);
    // The library stays loaded: others in the process may use it, and unloading CUDA libraries is not safe at exit.
  }
};

Gemm::Gemm() : library_(std::make_unique<Library>()) {
  Library& lt = *library_;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    lt.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lt.handle != nullptr) break;
  }
  if (lt.handle == nullptr)
    fail({.field = "--backend"},
         "the library cuBLASLt (libcublasLt.so) was not found; the CUDA backend needs it for long prompts");
  lt.load(lt.create, "cublasLtCreate");
  lt.load(lt.destroy, "cublasLtDestroy");
  lt.load(lt.matmul, "cublasLtMatmul");
  lt.load(lt.desc_create, "cublasLtMatmulDescCreate");
  lt.load(lt.desc_destroy, "cublasLtMatmulDescDestroy");
  lt.load(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  lt.load(lt.layout_create, "cublasLtMatrixLayoutCreate");
  lt.load(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  lt.load(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  lt.load(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  lt.load(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  lt.load(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  check_status(lt.create(&lt.context), "starting");
  check(cudaMalloc(&lt.workspace, Library::kWorkspaceBytes), "reserving cuBLASLt's work space");
}

Gemm::~Gemm() = default;

void Gemm::multiply(cudaStream_t stream, const __half* x, const __half* w, float* out, std::int64_t m, std::int64_t n,
                    std::int64_t k) {
  const Library::Plan& plan = library_->plan(m, n, k);
  const float one = 1, zero = 0;
  check_status(library_->matmul(library_->context, plan.product, &one, w, plan.a, x, plan.b, &zero, out, plan.c, out,
                                plan.c, &plan.algorithm, library_->workspace, Library::kWorkspaceBytes, stream),
               "multiplying");
}

}  // namespace pergola::cuda
