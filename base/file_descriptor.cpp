#include "base/file_descriptor.h"

#include <unistd.h>

namespace ddp {

void FileDescriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace ddp
