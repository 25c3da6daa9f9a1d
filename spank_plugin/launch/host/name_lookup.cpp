#include "spank_plugin/launch/host/name_lookup.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/text.h"

namespace ddp::launch {
namespace {

using Clock = std::chrono::steady_clock;

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

constexpr std::size_t kMaxMessage = 4096;  // PIPE_BUF: written, and so read, in one piece

// The answer's first byte is the result; then the addresses, a line each.
std::string encode(const NameAnswer& answer) {
  std::string message(1, static_cast<char>(answer.lookup));
  for (const auto& address : answer.addresses) message.append(address).append("\n");
  message.resize(std::min(message.size(), kMaxMessage));
  return message;
}

NameAnswer decode(std::string_view message) {
  NameAnswer answer{static_cast<NameLookup>(message.front()), {}};
  for (const auto address : split(message.substr(1), '\n')) {
    if (is_host_or_address(address)) answer.addresses.emplace_back(address);
  }
  return answer;
}

// The child: the answer, and out, without running anything that the parent set up for its own end.
[[noreturn]] void answer_and_leave(int answer_end, const Resolver& resolver,
                                   const std::string& name) noexcept {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    NameAnswer answer{NameLookup::no_answer, {}};
    try {
      answer = resolver(name);
    } catch (...) {  // nothing to tell
    }
    const std::string message = encode(answer);
    const bool told = write(answer_end, message.data(), message.size()) > 0;
    _exit(told ? 0 : 1);
  } catch (...) {  // no memory
    _exit(1);
  }
}

NameAnswer wait_for_answer(int answer_end, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  pollfd ready{answer_end, POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return {NameLookup::timed_out, {}};
    const int count = poll(&ready, 1, static_cast<int>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return {NameLookup::timed_out, {}};
    std::array<char, kMaxMessage> message{};
    const ssize_t size = count < 0 ? -1 : read(answer_end, message.data(), message.size());
    if (size <= 0) return {};
    return decode({message.data(), static_cast<std::size_t>(size)});
  }
}

}  // namespace

NameAnswer resolve(const std::string& name) {
  constexpr std::size_t kMaxAddresses = 8;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (result != 0) {
    // Only these two are answers; the others say that the name service is down or overloaded.
    const bool is_answer = result == EAI_NONAME || result == EAI_NODATA;
    return {is_answer ? NameLookup::unknown_name : NameLookup::no_answer, {}};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  NameAnswer answer{NameLookup::only_loopback, {}};
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (is_loopback(*address)) continue;
    answer.lookup = NameLookup::usable;
    std::array<char, NI_MAXHOST> text{};
    if (answer.addresses.size() < kMaxAddresses &&
        getnameinfo(address->ai_addr, address->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      answer.addresses.emplace_back(text.data());
  }
  return answer;
}

NameAnswer look_up_name(const std::string& name, std::chrono::milliseconds limit,
                        const Resolver& resolver) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) answer_and_leave(ends[1], resolver, name);
  close(ends[1]);
  NameAnswer result;
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
