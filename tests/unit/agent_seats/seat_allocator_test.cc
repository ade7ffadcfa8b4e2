// Tests of the seats' places and of the count of their processes.
#include "backend_agent/seat_allocator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "backend_agent/discovery/file_incarnation_store.h"
#include "backend_agent/discovery/process_table.h"
#include "core/runtime/digest.h"
#include "tests/support/temporary_folder.h"

namespace callboard::agent {
namespace {

TEST(SeatAllocator, GivesTheLowestFreeNumberOfTheApp) {
  SeatAllocator seats("agent");
  EXPECT_EQ(seats.Assign("blender", "p1").name, "blender");
  EXPECT_EQ(seats.Assign("blender", "p2").name, "blender-2");
  EXPECT_EQ(seats.Assign("maya", "p3").name, "maya");
  EXPECT_EQ(seats.Assign("blender", "p1").name, "blender");
  EXPECT_EQ(seats.Assign("blender", "p1").seat_id, core::Sha256Hex(std::string("agent\0blender\0"
                                                                               "1",
                                                                               15))
                                                       .substr(0, 32));
}

TEST(SeatAllocator, ARestartedDccComesBackToItsSeat) {
  SeatAllocator seats("agent");
  const std::string first = seats.Assign("blender", "p1").seat_id;
  const std::string second = seats.Assign("blender", "p2").seat_id;
  seats.Release("p1");
  EXPECT_EQ(seats.Assign("blender", "p3").seat_id, first);
  seats.Release("p2");
  EXPECT_EQ(seats.Assign("blender", "p4").seat_id, second);
}

TEST(SeatAllocator, ConfiguredNameIsASlotOfItsOwn) {
  SeatAllocator seats("agent");
  EXPECT_EQ(seats.Assign("blender", "p1", "lighting").name, "lighting");
  EXPECT_EQ(seats.Assign("blender", "p2").name, "blender");
  // Taken already: the next number.
  EXPECT_EQ(seats.Assign("blender", "p3", "lighting").name, "blender-2");
}

TEST(SeatAllocator, AProcessKeepsItsSeatOverARestartOfTheAgent) {
  SeatAllocator before("agent");
  before.Assign("blender", "p1");
  const std::string second = before.Assign("blender", "p2").seat_id;
  SeatAllocator after("agent");
  EXPECT_EQ(after.Assign("blender", "p2", "", second).seat_id, second);
  EXPECT_EQ(after.Assign("blender", "p1").name, "blender");
}

TEST(IncarnationCounter, CountsProcessesAndKnowsThemAgainAfterARestart) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.path() + "/incarnations.json";
  {
    FileIncarnationStore store(path);
    IncarnationCounter counter(store);
    EXPECT_EQ(counter.Next("s", {10, 100}), 1u);
    EXPECT_EQ(counter.Next("s", {10, 100}), 1u);
    EXPECT_EQ(counter.Next("s", {11, 100}), 2u);
    EXPECT_EQ(counter.Next("s", {11, 200}), 3u);
  }
  FileIncarnationStore store(path);
  IncarnationCounter counter(store);
  EXPECT_EQ(counter.Next("s", {11, 200}), 3u);
  EXPECT_EQ(counter.FindSeat({11, 200}), "s");
  EXPECT_EQ(counter.Next("s", {12, 200}, 40), 41u);
  // Without a start time nobody can tell.
  EXPECT_EQ(counter.Next("s", {}), 42u);
  EXPECT_EQ(counter.Next("s", {}), 43u);
  std::ofstream(path) << "{";
  IncarnationCounter damaged(store);
  EXPECT_NE(damaged.last_error().message().find("damaged"), absl::string_view::npos);
  EXPECT_EQ(damaged.Next("s", {1, 1}, 43), 44u);
}

TEST(ProcessTable, KnowsThisProcess) {
  const ProcessIdentity self = IdentifyProcess(getpid());
  EXPECT_EQ(self.pid, getpid());
  EXPECT_GT(self.start_time, 0u);
  EXPECT_EQ(IdentifyProcess(0).pid, 0);
}

}  // namespace
}  // namespace callboard::agent
