#include "quantize/mtp_linears.h"

#include <fmt/format.h>

namespace pergola {

namespace {

constexpr std::string_view kPrefix = "mtp.";

bool whole_blocks(std::int64_t width) {
  return width % 128 == 0;
}

/// Projections only: norms have one dimension, routers and the shared expert's gate stay dense.
bool is_projection(const TensorEntry& entry) {
  return entry.name.ends_with(".weight") && entry.shape.size() == 2 && is_float_weight(entry.dtype) &&
         whole_blocks(entry.shape[0]) && whole_blocks(entry.shape[1]) && !entry.name.ends_with(".mlp.gate.weight");
}

void add_fused_experts(const Checkpoint& source, const TensorEntry& entry, std::vector<LinearView>& views) {
  const std::string experts = entry.name.substr(0, entry.name.rfind('.'));
  const bool gate_up = entry.name.ends_with(".gate_up_proj");
  const std::int64_t rows = gate_up ? entry.shape[1] / 2 : entry.shape[1], in = entry.shape[2];
  for (std::int64_t e = 0; e < entry.shape[0]; ++e) {
    const auto add = [&](const char* name, std::int64_t first) {
      views.push_back(source.fused_expert(entry.name, e, first, rows, in));
      views.back().name = fmt::format("{}.{}.{}", experts, e, name);
    };
    add(gate_up ? "gate_proj" : "down_proj", 0);
    if (gate_up) add("up_proj", rows);
  }
}

}  // namespace

std::vector<LinearView> mtp_linears(const Checkpoint& source) {
  std::vector<LinearView> views;
  for (const TensorEntry& entry : source.entries()) {
    if (!entry.name.starts_with(kPrefix)) continue;
    if (is_projection(entry)) {
      views.push_back(source.linear(entry.name.substr(0, entry.name.size() - 7), entry.shape[1], entry.shape[0]));
    } else if (entry.shape.size() == 3 &&
               (entry.name.ends_with(".experts.gate_up_proj") || entry.name.ends_with(".experts.down_proj"))) {
      add_fused_experts(source, entry, views);
    }
  }
  return views;
}

}  // namespace pergola
