// SPDX-License-Identifier: Apache-2.0
// Creates and parses names. Parsing creates the name again and compares, so only the exact spelling
// is accepted.

#include "hdf5_ckpt/directory/layout.h"

#include <fmt/format.h>

#include <charconv>

#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::ckpt {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kHintDraft = ".latest.";
constexpr std::string_view kLeaseDraft = ".owner.";
constexpr std::string_view kTakenLease = ".owner-gone.";
constexpr std::string_view kNotesDraft = ".verified.";
constexpr std::string_view kLocalSavesDraft = ".local-saves.";

// Returns the rest of `text` after `prefix`, if it starts with `prefix`.
std::optional<std::string_view> after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

}  // namespace

std::string step_directory_name(std::uint64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<std::uint64_t> step_of_directory(std::string_view name) {
  const auto digits = after(name, kStepPrefix);
  if (!digits) return std::nullopt;
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), step);
  if (error != std::errc() || name != step_directory_name(step)) return std::nullopt;
  return step;
}

std::string owned_directory_name(std::string_view kind, std::uint64_t step, const OwnerTag& owner) {
  return fmt::format("{}-{}.{}", kind, step_directory_name(step), owner.text());
}

std::string hint_draft_name(const OwnerTag& owner) {
  return fmt::format("{}{}", kHintDraft, owner.text());
}

std::string lease_draft_name(const OwnerTag& owner) {
  return fmt::format("{}{}", kLeaseDraft, owner.text());
}
std::string taken_lease_name(const OwnerTag& owner) {
  return fmt::format("{}{}", kTakenLease, owner.text());
}
std::string notes_draft_name(const OwnerTag& owner) {
  return fmt::format("{}{}", kNotesDraft, owner.text());
}
std::string local_saves_draft_name(const OwnerTag& owner) {
  return fmt::format("{}{}", kLocalSavesDraft, owner.text());
}

std::optional<OwnerTag> owner_of_leftover(std::string_view name) {
  for (const std::string_view prefix :
       {kHintDraft, kLeaseDraft, kTakenLease, kNotesDraft, kLocalSavesDraft})
    if (const auto tag = after(name, prefix)) return OwnerTag::parse(*tag);
  for (const std::string_view kind : {kBuilding, kDeleting}) {
    const auto rest = after(name, fmt::format("{}-", kind));
    if (!rest) continue;
    const auto dot = rest->find('.');
    if (dot == std::string_view::npos || !step_of_directory(rest->substr(0, dot)))
      return std::nullopt;
    return OwnerTag::parse(rest->substr(dot + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> step_of_owned_directory(std::string_view kind, std::string_view name) {
  const auto rest = after(name, fmt::format("{}-", kind));
  if (!rest || !owner_of_leftover(name)) return std::nullopt;
  return step_of_directory(rest->substr(0, rest->find('.')));
}

}  // namespace ddp::ckpt
