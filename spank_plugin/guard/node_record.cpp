// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "base/text_file.h"
#include "spank_plugin/guard/above_standard.h"

namespace ddp::guard {
namespace {

constexpr off_t kSize = 1 << 19;

// Milliseconds, so that the soonest one is the smallest number; then whether it is explained, and
// the code.
std::uint64_t packed(const StepEnd& end) noexcept {
  const auto since_start = std::chrono::ceil<std::chrono::milliseconds>(end.at.time_since_epoch());
  return (static_cast<std::uint64_t>(since_start.count()) << 9U) |
         (end.is_explained ? 1U << 8U : 0U) | (static_cast<unsigned>(end.code) & 0xFFU);
}

// Whatever a process of the user has written there.
StepEnd unpacked(std::uint64_t packed_end) noexcept {
  const auto latest =
      std::chrono::floor<std::chrono::milliseconds>(Clock::now().time_since_epoch()) +
      std::chrono::hours(1);
  const std::chrono::milliseconds since_start(packed_end >> 9U);
  return {Clock::time_point(std::min(since_start, latest)), static_cast<int>(packed_end & 0xFFU),
          (packed_end >> 8U & 1U) != 0};
}

// A step of root could open the file of a user, who has given it this name.
bool is_own(const FileDescriptor& file) noexcept {
  struct stat status = {};
  return fstat(file.get(), &status) == 0 && status.st_uid == geteuid();
}

}  // namespace

FileDescriptor make_node_record(const std::string& name) noexcept {
  FileDescriptor file =
      above_standard(FileDescriptor(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (file && ftruncate(file.get(), kSize) != 0) file.close();
  // A process of the user that makes it shorter would end the guards, by SIGBUS.
  if (file) fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return file;
}

std::vector<FileDescriptor> find_node_records(const std::string& proc, std::string_view name) {
  constexpr std::size_t kMost = 8;
  const std::string link = "/memfd:" + std::string(name) + " (deleted)";
  std::vector<FileDescriptor> found;
  std::error_code error;
  std::filesystem::directory_iterator process(proc, error);
  for (; process != end(process); process.increment(error)) {
    const bool is_process = parse_decimal(process->path().filename().native()).has_value();
    if (!is_process || trimmed(read_kernel_file(process->path() / "comm")) != kGuardName) continue;
    std::error_code refused;  // of another user
    std::filesystem::directory_iterator file(process->path() / "fd", refused);
    for (; file != end(file) && found.size() < kMost; file.increment(refused)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(file->path(), gone).native() != link) continue;
      FileDescriptor record(open(file->path().c_str(), O_RDWR | O_CLOEXEC));
      if (is_own(record)) found.push_back(std::move(record));
      break;  // a guard has one
    }
  }
  return found;
}

NodeRecord::NodeRecord(int file) {
  static_assert(sizeof(Page) <= kSize && std::atomic<std::int64_t>::is_always_lock_free);
  if (map(file)) return;
  own_ = std::make_unique<Page>();
  page_ = own_.get();
}

bool NodeRecord::map(int file) noexcept {
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_size != kSize) return false;
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return false;
  page_ = static_cast<Page*>(memory);
  return true;
}

bool NodeRecord::join(int file, std::size_t local_rank) noexcept {
  if (!own_ || !map(file)) return false;
  if (slot(0).state == RankSlot::running && slot(local_rank).state == RankSlot::absent) {
    own_.reset();
    return true;
  }
  munmap(page_, sizeof(Page));
  page_ = own_.get();
  return false;
}

NodeRecord::~NodeRecord() {
  if (!own_) munmap(page_, sizeof(Page));
}

bool NodeRecord::is_first_failure() noexcept {
  return page_->failures.fetch_add(1) == 0;
}

void NodeRecord::end_step(const StepEnd& end) noexcept {
  const std::uint64_t wanted = packed(end);
  std::uint64_t known = page_->step_end;
  while (known == 0 || wanted < known) {
    if (page_->step_end.compare_exchange_weak(known, wanted)) return;
  }
}

void NodeRecord::set_step_end_told(const StepEnd& end) noexcept {
  page_->told_step_end = packed(end);
}

std::optional<StepEnd> NodeRecord::step_end() const noexcept {
  const std::uint64_t known = page_->step_end;
  if (known == 0) return std::nullopt;
  return unpacked(known);
}

}  // namespace ddp::guard
