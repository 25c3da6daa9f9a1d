// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/write/memory_headroom.h"
#include "hdf5_ckpt/write/snapshot.h"

namespace ddp::train {
namespace {

// Fraction of the available memory that a copy may use; training needs the rest.
constexpr double kUsablePart = 0.9;

// All ranks of a node allocate their copies at the same time.
std::optional<std::uint64_t> headroom_per_rank(std::uint64_t ranks_on_host) {
  const auto left = ckpt::memory_headroom();
  if (!left) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(*left) * kUsablePart) / ranks_on_host;
}

}  // namespace

ShardWriter::ShardWriter(const SaveContext& context)
    : context_(context),
      saver_({.budget_bytes = context.options.copy_bytes,
              .headroom = [ranks = context.hosts.beside(context.rank())] {
                return headroom_per_rank(ranks);
              }}) {}

void ShardWriter::start(const std::vector<StateArray>& arrays, Write write) {
  const auto writers = writers_of(arrays, context_.options.bytes_per_writer, context_.group.size());
  const int rank = context_.group.rank();
  if (!std::ranges::binary_search(writers, rank)) return;
  const auto share = on_host(share_of(context_.state, arrays, writers, rank));
  const auto work = [write = std::move(write),
                     place = ShardPlace{shard_name(writers, rank), writers.size()}](
                        std::span<const ckpt::ArrayView> views) { write(place, views); };
  const auto views = array_views(share);
  try {
    saver_.start(views, work);
  } catch (const std::exception&) {
    work(views);  // not enough memory for a copy, or no thread available
  }
  if (!saver_.short_of_memory() || std::exchange(said_short_, true)) return;
  context_.log.line(fmt::format(
      "checkpoint: rank {} has too little memory left for a copy of the {:.0f} MiB that it saves; "
      "they are written before the next step, as with --checkpoint-copy-mb 0",
      rank, static_cast<double>(ckpt::Snapshot::bytes_for(views)) / 1048576));
}

void ShardWriter::start(std::function<void()> work) {
  try {
    saver_.start({}, [work](std::span<const ckpt::ArrayView>) { work(); });
  } catch (const std::system_error&) {
    work();  // no thread available
  }
}

}  // namespace ddp::train
