// SPDX-License-Identifier: Apache-2.0
// The renames of a commit. Three flags record the progress, so that undo() can revert it.

#include "hdf5_ckpt/io/publish.h"

#include <stdio.h>

#include <cerrno>
#include <utility>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/directories.h"

namespace ddp::ckpt {

namespace fs = std::filesystem;

Publication::Publication(FileOps& ops, fs::path draft, fs::path final_name)
    : ops_(ops), draft_(std::move(draft)), final_(std::move(final_name)) {}

bool Publication::try_fresh() {
  const int code = rename_no_replace(ops_, draft_, final_);
  if (code == EEXIST) return false;
  if (code != 0) throw IoError("rename the finished checkpoint to", final_, code);
  published_ = true;
  return true;
}

void Publication::replace(const fs::path& aside) {
  aside_ = aside;
  exchanged_ = ops_.rename(draft_.c_str(), final_.c_str(), RENAME_EXCHANGE) == 0;
  published_ = exchanged_;
  if (!exchanged_ && errno != EINVAL && errno != ENOSYS)
    throw IoError("exchange the finished checkpoint with", final_, errno);
  const fs::path& old = exchanged_ ? draft_ : final_;
  if (const int code = rename_no_replace(ops_, old, aside_); code != 0) {
    undo();
    throw IoError("set aside the old checkpoint as", aside_, code);
  }
  exchanged_ = false;
  set_aside_ = true;
  if (published_) return;
  if (const int code = rename_no_replace(ops_, draft_, final_); code != 0) {
    undo();
    throw IoError("rename the finished checkpoint to", final_, code);
  }
  published_ = true;
}

void Publication::make_durable() {
  try {
    sync_directory(ops_, final_.parent_path());
  } catch (const IoError&) {
    undo();
    throw;
  }
}

void Publication::undo() {
  if (exchanged_) {
    ops_.rename(draft_.c_str(), final_.c_str(), RENAME_EXCHANGE);
  } else {
    if (published_) rename_no_replace(ops_, final_, draft_);
    if (set_aside_) rename_no_replace(ops_, aside_, final_);
  }
  exchanged_ = set_aside_ = published_ = false;
}

}  // namespace ddp::ckpt
