#include "spank_plugin/launch/host/name_lookup.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

namespace ddp::launch {
namespace {

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address.ai_addr, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, address.ai_addr, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

// The child: one byte with the answer, and out, without running anything that the parent set up
// for its own end.
[[noreturn]] void answer_and_leave(int answer_end, const Resolver& resolver,
                                   const std::string& name) noexcept {
  std::signal(SIGPIPE, SIG_IGN);
  std::array<unsigned char, 1> answer{static_cast<unsigned char>(NameLookup::unknown_name)};
  try {
    answer[0] = static_cast<unsigned char>(resolver(name));
  } catch (...) {  // nothing to tell but that the name is not known
  }
  const bool told = write(answer_end, answer.data(), answer.size()) == 1;
  _exit(told ? 0 : 1);
}

NameLookup wait_for_answer(int answer_end, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  pollfd ready{answer_end, POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return NameLookup::timed_out;
    const int count = poll(&ready, 1, static_cast<int>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return NameLookup::timed_out;
    std::array<unsigned char, 1> answer{};
    if (count < 0 || read(answer_end, answer.data(), answer.size()) != 1)
      return NameLookup::not_done;
    return static_cast<NameLookup>(answer[0]);
  }
}

}  // namespace

NameLookup resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return NameLookup::unknown_name;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (!is_loopback(*address)) return NameLookup::usable;
  }
  return NameLookup::only_loopback;
}

NameLookup look_up_name(const std::string& name, std::chrono::milliseconds limit,
                        const Resolver& resolver) noexcept {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return NameLookup::not_done;
  const pid_t child = fork();
  if (child == 0) answer_and_leave(ends[1], resolver, name);
  close(ends[1]);
  NameLookup result = NameLookup::not_done;
  if (child > 0) {
    result = wait_for_answer(ends[0], limit);
    kill(child, SIGKILL);  // it has answered, or never will
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return result;
}

}  // namespace ddp::launch
