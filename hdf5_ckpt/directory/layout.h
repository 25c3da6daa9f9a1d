// SPDX-License-Identifier: Apache-2.0
// The names in a checkpoint directory: step-N, and the names of entries being created or removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hdf5_ckpt/core/owner_tag.h"

namespace ddp::ckpt {

inline constexpr std::string_view kBuilding = ".tmp";    // a checkpoint being written
inline constexpr std::string_view kDeleting = ".trash";  // a checkpoint being deleted
inline constexpr std::string_view kDamaged = ".broken";  // a replaced damaged checkpoint
inline constexpr std::string_view kSuperseded =
    ".superseded";                                       // a checkpoint of an abandoned branch
inline constexpr std::string_view kHintName = "latest";  // a file with the latest checkpoint's name

// Returns the step of "step-00012345"; nullopt for any name that step_directory_name() does not
// produce.
std::optional<std::uint64_t> step_of_directory(std::string_view name);

inline constexpr std::string_view kLeaseName =
    ".owner";  // names the run that saves to the directory
inline constexpr std::string_view kVerifiedName =
    ".verified";  // checkpoints that retention has verified
inline constexpr std::string_view kLocalSavesName =
    ".local-saves";  // identifies the directory's node-local saves

// Returns ".tmp-step-00012345.<owner>".
std::string owned_directory_name(std::string_view kind, std::uint64_t step, const OwnerTag& owner);

// Returns ".latest.<owner>", the name of the hint before its rename.
std::string hint_draft_name(const OwnerTag& owner);

// Return the draft names of the lease, of a lease being removed, of the notes of retention and of
// the identity of node-local saves.
std::string lease_draft_name(const OwnerTag& owner);
std::string taken_lease_name(const OwnerTag& owner);
std::string notes_draft_name(const OwnerTag& owner);
std::string local_saves_draft_name(const OwnerTag& owner);

// Returns the owner in a name made by owned_directory_name with kBuilding or kDeleting, or by one
// of the functions above; nullopt for other names.
std::optional<OwnerTag> owner_of_leftover(std::string_view name);

// Returns the step in a name made by owned_directory_name with `kind`; nullopt for other names.
std::optional<std::uint64_t> step_of_owned_directory(std::string_view kind, std::string_view name);

}  // namespace ddp::ckpt
