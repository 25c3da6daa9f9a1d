#pragma once
// A file for people: one HDF5 file beside the files of a checkpoint, through which h5py sees every
// array whole, however many parts it is stored in. Nothing is copied, and no reader of ours uses
// it.
//
// Note [Views that fail loudly]
// A virtual dataset of HDF5 shows fill values, without any error, for a source that it cannot open.
// This view is made so that it cannot happen:
//   - An array that one file holds whole is an external link: opening it raises if the file is
//     missing, renamed or cut short.
//   - An array in parts is a virtual dataset whose sources are datasets of the view itself, which
//     are always there. Their bytes are external storage in the files of the checkpoint, and HDF5
//     raises when it cannot open one of those. It does read zeros behind the end of one that was
//     cut short; the group .view/files has a link to each file, and opening that raises then.
//   - HDF5 looks for external storage from the working directory, so its names are absolute here;
//     and for external links in the working directory too, where another checkpoint may have files
//     of the same names. Therefore all names are those of symbolic links beside the view that
//     carry a checksum of this checkpoint's manifest: another checkpoint, in this place or
//     elsewhere, is never shown in its stead.

#include <filesystem>

#include "hdf5_ckpt/checkpoint.h"

namespace ddp::ckpt {

inline constexpr std::string_view kViewName = "view.h5";

// Makes `view.h5` in the checkpoint's directory, or makes it anew, durably, and returns its path.
// After the directory has been moved or copied it must be made again. Throws Error.
std::filesystem::path make_view(const Checkpoint& checkpoint);

}  // namespace ddp::ckpt
