// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint on all ranks.
//
// Note [Each rank reads its rows]
// Rank 0 chooses the checkpoint and reads all of it that is not divided. If the state is divided,
// it names the checkpoint to the others, which read their own rows meanwhile, so that no rank ever
// has more of the state than its share. Then the ranks exchange their results. Damage that any of
// them finds is damage to rank 0, which tries an older checkpoint, and names that one. A rank
// that does not see the same checkpoint, because the directory is on a disk of rank 0's node, gets
// its rows from rank 0, which sends one array after the other.
#pragma once

#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {

// On rank 0, while the others are in follow_leader(): all ranks load the checkpoint. Throws as
// TrainingState::load() does; what another rank finds is thrown as the same type of error, for
// damaged and for unreadable bytes, otherwise as RuntimeError.
void load_on_all(comm::Group& group, TrainingState& state, const ckpt::Checkpoint& checkpoint);

// On rank 0, after the last load_on_all(): ends follow_leader() on the others, where it returns
// `text`.
void end_loading(comm::Group& group, const std::string& text);
// On the other ranks: loads what rank 0 loads, until it has chosen. Returns its text.
std::string follow_leader(comm::Group& group, TrainingState& state);

}  // namespace ddp::train
