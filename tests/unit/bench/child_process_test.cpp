// A child that answers, one that has gone, one that was never there, one that does not listen.
#include "bench/child_process.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "base/errors.h"

namespace ddp::bench {
namespace {

using ::testing::HasSubstr;

// What it throws, as text.
template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const RuntimeError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ChildProcess, AnswersInWholeLines) {
  ChildProcess child({"/bin/cat"});
  child.write_line("first");
  child.write_line("");
  child.write_line(std::string(100000, 'x'));
  EXPECT_EQ(child.read_line(), "first");
  EXPECT_EQ(child.read_line(), "");
  EXPECT_EQ(child.read_line(), std::string(100000, 'x'));
}

TEST(ChildProcess, TellsThatItIsGone) {
  ChildProcess child({"/bin/true"});
  EXPECT_THAT(error_of([&] { child.read_line(); }), HasSubstr("/bin/true has ended too early"));
  EXPECT_THAT(error_of([&] { child.write_line("into nothing"); }), HasSubstr("ended too early"));
}

TEST(ChildProcess, CannotStartWhatIsNotThere) {
  EXPECT_THAT(error_of([] { const ChildProcess child({"/no/such/program"}); }),
              HasSubstr("cannot start /no/such/program: No such file"));
}

TEST(ChildProcess, EndsWithTheObjectEvenIfItIsDeaf) {
  pid_t pid = 0;
  {
    ChildProcess child({"/bin/sh", "-c", "echo $$; exec sleep 1000"});
    pid = static_cast<pid_t>(std::stol(child.read_line()));
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace ddp::bench
