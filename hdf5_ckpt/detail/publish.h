// SPDX-License-Identifier: Apache-2.0
// Gives a finished directory its final name so that at any moment the name refers to the complete
// old one, the complete new one, or nothing.
#pragma once

#include <filesystem>

#include "hdf5_ckpt/file_ops.h"

namespace ddp::ckpt {

class Publication {
 public:
  // `draft` becomes `final_name`; an existing one is moved to `aside`. All are in one directory.
  // `ops` must outlive the object.
  Publication(FileOps& ops, std::filesystem::path draft, std::filesystem::path final_name);

  // Renames without replacing. False if the final name is taken. Throws IoError.
  bool try_fresh();

  // Takes over the final name; its current holder is moved to `aside`. Exchanges the two atomically
  // where the file system supports it; elsewhere the name is missing for a moment. Throws IoError
  // with everything unchanged.
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
