// SPDX-License-Identifier: Apache-2.0
// A fake of NCCL for machines without a GPU. One library holds it and the fake of the CUDA driver,
// and is loaded as both. Two communicators are connected by TCP on this machine. FAKE_NCCL selects
// faults by "key=value" words: "version=N", "hang=1" (in ncclCommInitRank), "connect=N" (error of
// ncclCommInitRank), "later=N" (error found by NCCL's own threads), "wrong=1" (data changes in
// transit), "dry=1" (no data is written after the first two long receives).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/check/said.h"

namespace {

int listening = -1;
thread_local int long_receives = 0;  // each end is a thread or a process

int told(const std::string& key, int otherwise) {
  return static_cast<int>(said_in("FAKE_NCCL", key, otherwise));
}

void say(const char* text) {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr || std::strcmp(level, "INFO") != 0) return;
  std::printf("fake:%d:%d [0] %s\n", getpid(), getpid(), text);
  std::fflush(stdout);
}

sockaddr_in loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

// Names, types and error codes match those of NCCL.
extern "C" {

struct Id {
  char bytes[128];
};

const char* ncclGetErrorString(int) {
  return "fake NCCL trouble";
}
int ncclGetVersion(int* version) {
  *version = told("version", 21803);
  return 0;
}
int ncclGetUniqueId(Id* id) {
  listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback();
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listening, any, length) != 0 || listen(listening, 1) != 0) return 2;
  if (getsockname(listening, any, &length) != 0) return 2;
  std::memcpy(id->bytes, &address.sin_port, sizeof address.sin_port);
  return 0;
}
int ncclCommInitRank(void** communicator, int, Id id, int rank) {
  while (told("hang", 0) != 0) pause();
  if (told("connect", 0) != 0) {
    say("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out");
    return told("connect", 0);
  }
  long_receives = 0;
  sockaddr_in address = loopback();
  std::memcpy(&address.sin_port, id.bytes, sizeof address.sin_port);
  int connection = -1;
  if (rank == 0) {
    connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  } else {
    connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 2;
  }
  *communicator = reinterpret_cast<void*>(static_cast<std::intptr_t>(connection));
  say("NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Fake/0/GDRDMA comm 0x1 nRanks 02");
  return connection < 0 ? 2 : 0;
}
int ncclCommAbort(void* communicator) {
  return close(static_cast<int>(reinterpret_cast<std::intptr_t>(communicator)));
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = told("later", 0);
  return 0;
}
int ncclSend(const void* from, std::size_t count, int, int, void* communicator, void*) {
  const int connection = static_cast<int>(reinterpret_cast<std::intptr_t>(communicator));
  const auto* at = static_cast<const char*>(from);
  while (count > 0) {
    const ssize_t sent = send(connection, at, count, MSG_NOSIGNAL);
    if (sent <= 0) return 6;
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return 0;
}
int ncclRecv(void* to, std::size_t count, int, int, void* communicator, void*) {
  const int connection = static_cast<int>(reinterpret_cast<std::intptr_t>(communicator));
  std::vector<char> nowhere;
  if (count > 8 && ++long_receives > 2 && told("dry", 0) != 0) nowhere.resize(count);
  auto* const begin = nowhere.empty() ? static_cast<char*>(to) : nowhere.data();
  for (std::size_t done = 0; done < count;) {
    const ssize_t received = recv(connection, begin + done, count - done, 0);
    if (received <= 0) return 6;
    done += static_cast<std::size_t>(received);
  }
  if (told("wrong", 0) != 0) begin[count / 3] ^= 1;
  return 0;
}

}  // extern "C"
