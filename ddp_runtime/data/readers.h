// SPDX-License-Identifier: Apache-2.0
// Readers of the supported data sets.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

// The 1,797 handwritten digits (8 x 8) that come with the project, a tenth held out. `file` is
// digits.csv.gz.
DataPair read_digits(const std::filesystem::path& file);

// A directory with the four IDX files of MNIST or a data set of the same form
// (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...; also with a dot before idx, also
// gzipped).
DataPair read_mnist(const std::filesystem::path& directory);

// A directory with the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin,
// test_batch.bin): images [3, 32, 32], each channel with mean 0 and deviation 1. Read on demand.
DataPair read_cifar10(const std::filesystem::path& directory);

// Any file, as input for a byte-level language model: windows of `context` bytes. The last tenth of
// the file is held out. Read on demand.
DataPair read_text(const std::filesystem::path& file, std::int64_t context);

// A file with the datasets x [n, ...], floating-point or unsigned bytes (scaled to 0..1), and y
// [n], classes from 0; every tenth sample is held out. Links and storage outside the file are
// refused. Read on demand.
DataPair read_hdf5(const std::filesystem::path& file);

// Random inputs whose class is a fixed random function of them, so that there is something to
// learn. Deterministic: the same arguments give the same data.
DataPair make_synthetic(const std::vector<std::int64_t>& input_shape, std::int64_t classes,
                        std::int64_t samples, std::uint64_t seed);

}  // namespace ddp::data
