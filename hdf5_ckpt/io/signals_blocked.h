// SPDX-License-Identifier: Apache-2.0
// Blocks all signals while it lives: a thread that is started meanwhile inherits the mask, so that
// signals reach only the program's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ddp::ckpt {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace ddp::ckpt
