// SPDX-License-Identifier: Apache-2.0
// A view for people: one HDF5 file beside the files of a checkpoint, through which h5py sees every
// array whole, regardless of the number of its stored parts. It copies no data, and none of our
// readers uses it.
//
// Note [Views that fail loudly]
// A virtual dataset of HDF5 silently shows fill values for a source that it cannot open. The
// structure of this view prevents that:
//   - An array stored whole in one file is an external link: opening it raises an error if the
//     file is missing, renamed or truncated.
//   - An array in parts is a virtual dataset whose sources are datasets of the view itself, which
//     always exist. Their bytes are external storage in the files of the checkpoint, and HDF5
//     raises an error when it cannot open one of these files. It does read zeros past the end of a
//     truncated file, but the group .view/files has a link to each file, and opening the link to a
//     truncated file raises an error.
//   - HDF5 resolves external storage relative to the working directory, so the names are absolute
//     here. It searches the working directory for external links as well, where another checkpoint
//     may have files of the same names. Therefore all names refer to symbolic links beside the view
//     whose names contain a checksum of this checkpoint's manifest: the files of another
//     checkpoint, in this place or elsewhere, are never shown instead.
#pragma once

#include <filesystem>

#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {

inline constexpr std::string_view kViewName = "view.h5";

// Creates or replaces `view.h5` in the checkpoint's directory, durably, and returns its path. Call
// it again after the directory has been moved or copied. Throws Error.
std::filesystem::path make_view(const Checkpoint& checkpoint);

}  // namespace ddp::ckpt
