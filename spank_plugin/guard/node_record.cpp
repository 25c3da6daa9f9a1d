// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddp::guard {
namespace {

constexpr off_t kSize = 1 << 18;

}  // namespace

FileDescriptor make_node_record() noexcept {
  FileDescriptor file(memfd_create("ddp-guard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file && ftruncate(file.get(), kSize) != 0) file.close();
  // A process of the user that makes it shorter would end the guards, by SIGBUS.
  if (file) fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return file;
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
