#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/forwarding_backend.h"

namespace pergola {

/// What linears that share an input were given.
struct ObservedInput {
  const std::string& name;         ///< of the first member of the group
  const Tensor& x;                 ///< [rows, in_features], in device memory, valid during the call only
  std::span<const float> routing;  ///< the factor of each row's output, for routed experts; empty: 1 for every row
};

using InputObserver = std::function<void(const ObservedInput& input)>;

/// A backend that passes everything on and tells an observer the inputs of every linear, for calibration. In a mixture
/// of experts every expert is shown every row, with the weight that the router gave it: its gate stands for gate and
/// up; `moe.name` stands for the input of the whole. That costs extra work, and its memory is taken when experts are
/// bound.
class ObservingBackend final : public ForwardingBackend {
 public:
  ObservingBackend(Backend& inner, InputObserver observer) : ForwardingBackend(inner), observer_(std::move(observer)) {}

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override;
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override;
  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override;
  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override;

 private:
  /// Gate and up of one expert, to compute what its down projection gets.
  struct ExpertProbe {
    std::string gate;
    std::string down;
    bool routed = false;
    std::unique_ptr<LinearGroup> gate_up;
  };
  struct MoeProbe {
    MoeView view;  ///< how it routes; without its experts
    std::unique_ptr<LinearGroup> router;
    std::vector<ExpertProbe> experts;  ///< the routed ones, then the shared one
    std::unique_ptr<Buffer> buffer;
    Tensor gate;
    Tensor up;
    Tensor logits;  ///< f32 [max_rows, routed experts]
  };

  std::vector<float> routing_of(const MoeProbe& probe, const Tensor& x);

  InputObserver observer_;
  std::map<const LinearGroup*, std::string> groups_;
  std::map<const Moe*, MoeProbe> moes_;
};

}  // namespace pergola
