#include "spank_plugin/launch/host/file_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ddp::launch {
namespace {

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  }  // does not wait for a pipe's writer
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_regular() const noexcept {
    struct stat status {};
    return fd_ >= 0 && fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::optional<std::string> read_text(const std::string& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (!file.is_regular()) return std::nullopt;
  std::string text;
  std::array<char, 16'384> block{};
  while (text.size() < max_bytes) {
    const auto wanted = std::min(block.size(), max_bytes - text.size());
    const ssize_t count = read(file.get(), block.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace ddp::launch
