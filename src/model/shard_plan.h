#pragma once

#include <cstdint>
#include <vector>

#include "base/index_range.h"
#include "model/blueprint.h"

namespace pergola {

/// Where routed experts go when several ranks compute one model.
enum class ExpertPlacement : std::uint8_t {
  automatic,  ///< split where their width divides, else spread
  split,      ///< every rank has a slice of every expert
  spread,     ///< every rank has some experts whole
};

struct ShardOptions {
  int ranks = 1;
  ExpertPlacement experts = ExpertPlacement::automatic;
};

/// What each rank has of a layer; every list has one entry a rank.
struct LayerShards {
  std::vector<IndexRange> heads;     ///< query heads of attention, value heads of a delta net
  std::vector<IndexRange> kv_heads;  ///< key/value heads, key heads; several ranks have the same where ranks outnumber
                                     ///< them
  std::vector<IndexRange> width;     ///< of the dense feed-forward, or of every expert
  std::vector<IndexRange> experts;   ///< of the mixture; empty without one
  std::vector<IndexRange> shared;    ///< of the shared expert's width; count 0 where a rank has none of it
};

/// How a model is cut over ranks. Projections into a block are cut by outputs (heads, width), those out of it by
/// inputs, so that a block ends with one sum over the ranks; the head is cut by vocabulary. Embedding, norms and
/// routers are whole on every rank.
struct ShardPlan {
  int ranks = 1;
  ExpertPlacement experts = ExpertPlacement::split;
  std::vector<LayerShards> layers;
  std::vector<IndexRange> vocabulary;
};

/// A pure function of shapes: no weight is read. A trellis is cut between blocks of 128 only: its transform mixes each
/// block. Heads and widths are divided evenly; vocabulary and spread experts as evenly as they go. Throws Error naming
/// the part that the number of ranks does not divide, with the numbers that this checkpoint can be cut into.
ShardPlan plan_shards(const ModelBlueprint& model, const ShardOptions& options);

/// The numbers of ranks up to `most` for which plan_shards has a plan.
std::vector<int> legal_ranks(const ModelBlueprint& model, ExpertPlacement experts, int most = 64);

}  // namespace pergola
