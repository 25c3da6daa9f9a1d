// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ddp::guard {
namespace {

constexpr off_t kSize = 1 << 17;

}  // namespace

FileDescriptor make_node_record() noexcept {
  FileDescriptor file(memfd_create("ddp-guard", MFD_CLOEXEC));
  if (file && ftruncate(file.get(), kSize) != 0) file.close();
  return file;
}

void RankSlot::set_wait(std::string_view channel) noexcept {
  std::array<std::uint64_t, std::tuple_size_v<decltype(wait_)>> words{};
  std::memcpy(words.data(), channel.data(), std::min(channel.size(), sizeof words));
  for (std::size_t i = 0; i < words.size(); ++i) wait_[i] = words[i];
}

std::string RankSlot::wait() const {
  std::string text;
  for (const auto& part : wait_) {
    const std::uint64_t word = part;
    text.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return text.substr(0, text.find('\0'));
}

NodeRecord::NodeRecord(int file) {
  static_assert(sizeof(Page) <= kSize && std::atomic<std::int64_t>::is_always_lock_free);
  struct stat status = {};
  if (file >= 0 && fstat(file, &status) == 0 && status.st_size == kSize) {
    void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) page_ = static_cast<Page*>(memory);
  }
  if (page_ != nullptr) return;
  own_ = std::make_unique<Page>();
  page_ = own_.get();
}

NodeRecord::~NodeRecord() {
  if (!own_) munmap(page_, sizeof(Page));
}

bool NodeRecord::is_first_failure() noexcept {
  return page_->failures.fetch_add(1) == 0;
}

}  // namespace ddp::guard
