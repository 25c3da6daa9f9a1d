// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddp::guard {
namespace {

constexpr off_t kSize = 4096;

}  // namespace

FileDescriptor make_node_record() noexcept {
  FileDescriptor file(memfd_create("ddp-guard", MFD_CLOEXEC));
  if (file && ftruncate(file.get(), kSize) != 0) file.close();
  return file;
}

NodeRecord::NodeRecord(int file) noexcept {
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) return;
  if (status.st_size != kSize) return;
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED) page_ = static_cast<Page*>(memory);
}

NodeRecord::~NodeRecord() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

bool NodeRecord::is_first_failure() noexcept {
  return page_ == nullptr || page_->failures.fetch_add(1) == 0;
}

}  // namespace ddp::guard
