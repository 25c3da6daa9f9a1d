#pragma once
// The names in a checkpoint directory: step-N, and those of things on their way in or out.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hdf5_ckpt/owner_tag.h"

namespace ddp::ckpt {

inline constexpr std::string_view kBuilding = ".tmp";           // a checkpoint being written
inline constexpr std::string_view kDeleting = ".trash";         // one being deleted
inline constexpr std::string_view kDamaged = ".broken";         // one that was replaced and is kept
inline constexpr std::string_view kSuperseded = ".superseded";  // one of an abandoned branch
inline constexpr std::string_view kHintName = "latest";  // a file with the name of the last one

// The step of "step-00012345", nothing for any name that step_directory_name() does not give.
std::optional<std::uint64_t> step_of_directory(std::string_view name);

inline constexpr std::string_view kLeaseName = ".owner";        // a file that says who saves there
inline constexpr std::string_view kVerifiedName = ".verified";  // what retention has read

// ".tmp-step-00012345.<owner>"
std::string owned_directory_name(std::string_view kind, std::uint64_t step, const OwnerTag& owner);

// ".latest.<owner>": the hint before it is renamed into place.
std::string hint_draft_name(const OwnerTag& owner);

// Likewise of the lease, a lease on its way out, and the notes of retention.
std::string lease_draft_name(const OwnerTag& owner);
std::string taken_lease_name(const OwnerTag& owner);
std::string notes_draft_name(const OwnerTag& owner);

// The owner in a name made by owned_directory_name with kBuilding or kDeleting, or by one of the
// functions above; nothing for other names.
std::optional<OwnerTag> owner_of_leftover(std::string_view name);

}  // namespace ddp::ckpt
