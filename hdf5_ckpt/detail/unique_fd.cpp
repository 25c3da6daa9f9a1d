// Kept out of the header so that it needs no system headers.

#include "hdf5_ckpt/detail/unique_fd.h"

#include <unistd.h>

namespace ddp::ckpt {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ddp::ckpt
