// SPDX-License-Identifier: Apache-2.0
// Gives a finished directory its final name so that at any moment the name refers to the complete
// old directory, the complete new directory, or nothing.
#pragma once

#include <filesystem>

#include "hdf5_ckpt/core/file_ops.h"

namespace ddp::ckpt {

class Publication {
 public:
  // Prepares to rename `draft` to `final_name`, in the same directory. `ops` must outlive the
  // object.
  Publication(FileOps& ops, std::filesystem::path draft, std::filesystem::path final_name);

  // Renames without replacing. Returns false if the final name is taken. Throws IoError.
  bool try_fresh();

  // Takes over the final name and moves the existing directory to `aside`. Exchanges the two
  // atomically if the file system supports it; otherwise the name is missing for a moment. If it
  // throws IoError, nothing has changed.
  void replace(const std::filesystem::path& aside);

  // Makes the change durable. Throws IoError after undoing the change as far as possible.
  void make_durable();

 private:
  void undo();

  FileOps& ops_;
  std::filesystem::path draft_;
  std::filesystem::path final_;
  std::filesystem::path aside_;
  bool exchanged_ = false;  // the old one is under the draft's name
  bool set_aside_ = false;  // the old one is at aside_
  bool published_ = false;  // the new one is under the final name
};

}  // namespace ddp::ckpt
