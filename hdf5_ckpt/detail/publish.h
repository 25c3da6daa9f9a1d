#pragma once
// Giving a finished directory its final name, so that at every moment there is either the old one,
// the new one or none under that name, and all of one.

#include <filesystem>

#include "hdf5_ckpt/file_ops.h"

namespace ddp::ckpt {

class Publication {
 public:
  // `draft` is to become `final_name`; what is there already goes to `aside`. All lie in one
  // directory. `ops` must outlive the object.
  Publication(FileOps& ops, std::filesystem::path draft, std::filesystem::path final_name);

  // Renames without replacing. False if the final name is taken. Throws IoError.
  bool try_fresh();

  // Takes the final name from what holds it, which goes to `aside`. Exchanges the two in one step
  // where the file system can; elsewhere the name is gone for a moment. Throws IoError with all as
  // it was.
  void replace(const std::filesystem::path& aside);

  // Makes it durable. Throws IoError with all as it was, as far as that can be done.
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
