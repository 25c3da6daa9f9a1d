// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/messages.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>

#include "base/file_descriptor.h"

namespace ddp::elastic {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class MessagesToAPipe : public ::testing::Test {
 protected:
  MessagesToAPipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
    fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
  }

  void fill() {
    fcntl(writer_.get(), F_SETFL, O_NONBLOCK);
    const std::string page(4096, 'x');
    while (write(writer_.get(), page.data(), page.size()) > 0) {
    }
    fcntl(writer_.get(), F_SETFL, 0);
  }

  std::string drain() {
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
      const auto size = read(reader_.get(), part.data(), part.size());
      if (size <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(size));
    }
  }

  FileDescriptor reader_;
  FileDescriptor writer_;
};

TEST_F(MessagesToAPipe, AreWrittenAtOnce) {
  Messages messages(writer_.get());
  messages.add("one");
  messages.add("two");
  EXPECT_EQ(drain(), "ddp-run: one\nddp-run: two\n");
}

TEST_F(MessagesToAPipe, WaitForAReaderWithoutDelay) {
  Messages messages(writer_.get(), 2);
  fill();
  const auto begun = std::chrono::steady_clock::now();
  for (const auto* text : {"one", "two", "three"}) messages.add(text);
  messages.flush_until(begun + std::chrono::milliseconds(1));
  EXPECT_THAT(drain(), Not(HasSubstr("ddp-run")));
  messages.flush();
  EXPECT_THAT(drain(),
              EndsWith("ddp-run: messages left out here: 1\nddp-run: two\nddp-run: three\n"));
}

TEST_F(MessagesToAPipe, OfManyPagesArriveWhole) {
  Messages messages(writer_.get());
  const std::string text(300'000, 'y');
  messages.add(text);
  std::string all = drain();
  while (all.size() < text.size()) {
    messages.flush();
    all += drain();
  }
  EXPECT_EQ(all, "ddp-run: " + text + "\n");
}

}  // namespace
}  // namespace ddp::elastic
