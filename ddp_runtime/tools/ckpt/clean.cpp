// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt clean and rollback, the two commands that change a checkpoint directory. Both hold its
// lease, so that no run saves there at the same time and unfinished files are always leftovers.

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/clean.h"
#include "hdf5_ckpt/directory/lease.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

OwnerTag this_tool() {
  return OwnerTag::of_this_process("ddp-ckpt", 0);
}

std::unique_ptr<Lease> lease_of(const fs::path& root) {
  constexpr auto kLook = std::chrono::milliseconds(1000);
  LeaseClaim claim(root, this_tool());
  for (bool first = true;; first = false) {
    if (auto lease = claim.advance(kLook)) return lease;
    if (first)
      fmt::print(stderr, "waiting for up to 30 s to see whether {} still saves to '{}'\n",
                 claim.other() ? claim.other()->name() : "another process", root.string());
  }
}

const char* what_it_is(Leftover::Kind kind) {
  switch (kind) {
    case Leftover::Kind::unfinished:
      return "unfinished";
    case Leftover::Kind::set_aside:
      return "set aside";
    case Leftover::Kind::replaced:
      return "damaged";
  }
  return "";
}

}  // namespace

int run_clean(const fs::path& root, const Cleaning& cleaning) {
  if (!fs::is_directory(root)) throw Error(fmt::format("'{}' is not a directory", root.string()));
  const auto lease = cleaning.dry_run ? nullptr : lease_of(root);
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (const Leftover& leftover : leftovers_in(root)) {
    const bool wanted = leftover.kind == Leftover::Kind::unfinished || cleaning.set_aside;
    const bool chosen = wanted && leftover.age >= cleaning.older_than;
    if (chosen && !cleaning.dry_run) remove_leftover(leftover);
    fmt::print("{}{}: '{}' ({}, {})\n", cleaning.dry_run && chosen ? "would be " : "",
               chosen ? "removed" : "kept", leftover.path.string(), what_it_is(leftover.kind),
               size_text(leftover.bytes));
    if (!chosen) continue;
    bytes += leftover.bytes;
    ++count;
  }
  fmt::print("{} {}, {}\n", count, cleaning.dry_run ? "would be removed" : "removed",
             size_text(bytes));
  return 0;
}

int run_rollback(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path step = whole.has_filename() ? whole : whole.parent_path();
  const Checkpoint checkpoint = Checkpoint::open(step);
  const std::uint64_t newest = checkpoint.manifest().step;
  if (step.filename() != step_directory_name(newest))
    throw Error(fmt::format("'{}' is not a checkpoint of a directory", step.string()));
  const auto lease = lease_of(step.parent_path());
  // A run would skip a damaged checkpoint and resume from an earlier one.
  checkpoint.verify();
  // Nodes may hold later states that continue this one.
  CheckpointDirectory(step.parent_path()).forget_local_saves();
  for (const fs::path& root : with_best_directory(step.parent_path()))
    for (const fs::path& name : CheckpointDirectory(root).set_aside_later_than(newest, this_tool()))
      fmt::print("set aside as '{}'\n", name.string());
  fmt::print("the newest checkpoint is now '{}'\n", step.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
