// SPDX-License-Identifier: Apache-2.0
// Writes named arrays into one HDF5 file, durably and at the speed of the disk.
//
// Note [Write path]
// libhdf5 creates only the skeleton (groups, dataset headers, attributes), in memory; we ask it for
// the offset of each array and write the bytes there ourselves. That is about twice as fast as
// H5Dwrite, and an error of the real disk never reaches libhdf5, which does not survive one (HDF5
// 1.10: a write fails, the close succeeds, the file reads wrong).
//   1. skeleton in /dev/shm, with crc32c attributes still zero except those of small arrays;
//      offsets from H5Dget_offset
//   2. target created, space for all of it reserved: a full disk is detected here
//   3. arrays written in blocks by `threads` threads, O_DIRECT where alignment allows; the crc32c
//      of each block is computed from the same bytes that are handed to the disk. Small arrays were
//      copied and their crc32c computed before step 1; adjacent ones are written together
//   4. the other crc32c attributes filled in by libhdf5 in the skeleton, which is then closed: so
//      the checksums inside HDF5's own object headers are right without patching anything by hand
//   5. all bytes of the skeleton that belong to no array copied, except the first eight; fsync
//   6. the first eight, which are the HDF5 signature; fsync
// A file torn before step 6 is complete has no signature: HDF5 tools refuse it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/progress.h"

namespace ddp::ckpt {

struct WriteOptions {
  // Number of writer threads, the calling thread included. They mostly wait for the disk, so more
  // than two help even with few cores.
  unsigned threads = 4;
  std::uint64_t block_bytes = 4ULL << 20;  // a multiple of 4096, kMinBlockBytes to kMax...
  bool direct_io = true;                   // where the file system supports O_DIRECT
  std::filesystem::path scratch_dir = {};  // for the skeleton; empty: /dev/shm, else $TMPDIR
  Progress progress = {};                  // of array bytes written
};

// Writes `arrays` (any order) and `attributes` to a new file `path`, whose directory exists. Array
// names are paths: "model/conv1.weight" is dataset conv1.weight in group model. One file holds at
// most one part of an array. `attributes` is a flat JSON object of strings, numbers and booleans
// for the file's root group. The same arrays, attributes and options give the same bytes. Returns
// when the file's content is durable; making its directory entry durable is up to the caller.
// Throws Error and leaves no file behind; the file must not exist before.
FileRecord write_hdf5_file(const std::filesystem::path& path, std::span<const ArrayView> arrays,
                           const nlohmann::json& attributes, const WriteOptions& options = {},
                           FileOps& ops = system_file_ops());

}  // namespace ddp::ckpt
