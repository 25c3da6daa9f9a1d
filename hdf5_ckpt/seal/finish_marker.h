// SPDX-License-Identifier: Apache-2.0
// How to tell from outside that a program has finished saving a checkpoint.
#pragma once

#include <filesystem>
#include <optional>

namespace ddp::ckpt {

// Returns the file that the program writes last, if it is there:
//   .metadata                             torch.distributed.checkpoint, and Lightning with FSDP
//   trainer_state.json                    transformers.Trainer
//   ../latest                             DeepSpeed, if it names this checkpoint
//   ../latest_checkpointed_iteration.txt  Megatron-LM, the same
//   the checkpoint itself                 one file of torch.save, which ends with its directory
// None if it is not there, or nothing is known of the program.
std::optional<std::filesystem::path> finish_marker(const std::filesystem::path& checkpoint);

// Whether the program has finished that file, too: JSON that a kill has cut off is none.
bool is_complete_marker(const std::filesystem::path& marker);

}  // namespace ddp::ckpt
