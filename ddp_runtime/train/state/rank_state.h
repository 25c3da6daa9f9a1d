// SPDX-License-Identifier: Apache-2.0
// State of which each rank has its own, such as the parameters between two averages of local steps,
// as arrays of a checkpoint whose names begin with "local/":
//
//   local/rank/<name>  [ranks, ...]: row r is rank r's
//   local/<name>       the same on all ranks
//
// A run that has no use for them, because it has other ranks or none of its own state, leaves them
// in the checkpoint: the other arrays are a complete state.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {

inline constexpr std::string_view kRankState = "local/";
inline constexpr std::string_view kOwnRows = "local/rank/";

struct SavedArray {
  std::string name;
  std::vector<std::int64_t> sizes;
  torch::ScalarType type = torch::kFloat32;

  nlohmann::json to_json() const;
  static SavedArray from_json(const nlohmann::json& json);
};

class RankState {
 public:
  virtual ~RankState() = default;
  RankState() = default;
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;

  // Collective, between two steps: what to save, by names and divisions that are the same on all
  // ranks. Afterwards, the optimizers of all ranks have state of the same names.
  virtual std::vector<StateArray> arrays() = 0;
  // Where to read what is of use in a checkpoint with these arrays: in host memory that this object
  // keeps. Called for each checkpoint that is tried; forgets the earlier ones.
  virtual std::vector<StateArray> places_for(const std::vector<SavedArray>& saved) = 0;
};

// Those of the checkpoint whose names begin with kRankState.
std::vector<SavedArray> rank_arrays_in(const ckpt::Checkpoint& checkpoint);

// One row for each rank, of which `mine` is this rank's.
StateArray own_row(std::string name, const torch::Tensor& mine, int rank, int ranks);
// The same on all ranks; rank 0 saves it.
StateArray common_array(std::string name, const torch::Tensor& values, int ranks);

// A place for each of `saved`: that of `state`, which may be null, or one without rows, for bytes
// that are only verified.
std::vector<StateArray> places_of(RankState* state, const std::vector<SavedArray>& saved);

// Collective. The places of `state` for a checkpoint that rank 0 passes, and the others do not see.
std::vector<StateArray> own_places_from_leader(comm::Group& group, RankState* state,
                                               const ckpt::Checkpoint* checkpoint);

}  // namespace ddp::train
