// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/shard_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::train {
namespace {

using nlohmann::json;

constexpr std::uint64_t kPieceBytes = 16ULL << 20;

void send_text(comm::Group& group, int to, std::string text) {
  auto length = static_cast<std::int64_t>(text.size());
  group.send(comm::buffer_of(length), to, "length of a text").wait();
  group.send(comm::buffer_of(std::span(text)), to, "text").wait();
}

std::string receive_text(comm::Group& group, int from) {
  std::int64_t length = 0;
  group.receive(comm::buffer_of(length), from, "length of a text").wait();
  std::string text(static_cast<std::size_t>(length), '\0');
  group.receive(comm::buffer_of(std::span(text)), from, "text").wait();
  return text;
}

// Returns false at the end of the file, and for an error.
bool read_all(int file, std::span<std::byte> piece) {
  while (!piece.empty()) {
    const ssize_t n = read(file, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    piece = piece.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// A file at its final size, so that writing to it cannot fail for lack of room.
class NewFile {
 public:
  NewFile(const std::filesystem::path& path, std::uint64_t size)
      : path_(path),
        file_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (!file_) throw ckpt::IoError("create", path, errno);
    if (const int code = posix_fallocate(file_.get(), 0, static_cast<off_t>(size)); code != 0) {
      unlink(path.c_str());
      throw ckpt::IoError("reserve room for", path, code);
    }
  }

  void write(std::span<const std::byte> piece) {
    const std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (!write_all(file_.get(), text)) throw ckpt::IoError("write", path_, errno);
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace

std::vector<std::vector<FoundShard>> collect_found(comm::Group& group,
                                                   const std::vector<int>& leaders,
                                                   const std::vector<ckpt::LocalShard>& mine) {
  std::vector<std::vector<FoundShard>> found;
  if (group.rank() != 0) {
    if (std::ranges::find(leaders, group.rank()) != leaders.end()) {
      send_text(group, 0, found_to_text(mine));
    }
    return found;
  }
  found.resize(static_cast<std::size_t>(group.size()));
  for (const int leader : leaders) {
    const auto text = leader == 0 ? found_to_text(mine) : receive_text(group, leader);
    found.at(static_cast<std::size_t>(leader)) = found_from_text(text);
  }
  return found;
}

void send_shard(comm::Group& group, int to, const ckpt::LocalStore& store,
                const ckpt::LocalShard& shard) {
  send_text(group, to, ckpt::shard_to_text(shard));
  const FileDescriptor file(
      open(store.file_of(shard).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::vector<std::byte> piece;
  for (auto left = shard.record.file.size; left > 0; left -= piece.size()) {
    piece.assign(std::min(left, kPieceBytes), std::byte{});
    read_all(file.get(), piece);
    group.send(comm::buffer_of(std::span(piece)), to, "part of a copy").wait();
  }
}

// Receives all of it, whatever happens: the sender waits for that.
ReceivedShard receive_shard(comm::Group& group, int from, ckpt::LocalStore& store) {
  ReceivedShard received{ckpt::shard_from_text(receive_text(group, from)), {}};
  const auto& shard = *received.shard;
  std::optional<NewFile> file;
  try {
    file.emplace(store.make_room_for(shard), shard.record.file.size);
  } catch (const std::exception& e) {
    received.problem = e.what();
  }
  std::vector<std::byte> piece;
  for (auto left = shard.record.file.size; left > 0; left -= piece.size()) {
    piece.resize(std::min(left, kPieceBytes));
    group.receive(comm::buffer_of(std::span(piece)), from, "part of a copy").wait();
    try {
      if (received.problem.empty()) file->write(piece);
    } catch (const std::exception& e) {
      received.problem = e.what();
    }
  }
  if (!received.problem.empty()) return received;
  try {
    store.add(shard);
  } catch (const std::exception& e) {
    received.problem = e.what();
  }
  return received;
}

}  // namespace ddp::train
