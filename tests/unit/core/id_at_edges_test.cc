// Tests of finding a message's id where only its ends are known.
#include "core/mcp/id_at_edges.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

TEST(IdAtEdges, IsFoundBeforeWhatIsLong) {
  EXPECT_EQ(FindIdAtEdges(R"({"jsonrpc":"2.0","id":"se\"ven","method":"m","params":{"x":"aaa)",
                          R"(aaa"}})"),
            R"("se\"ven")");
  EXPECT_EQ(FindIdAtEdges(R"( {"id" : 7, "result":{"x":"aaa)", R"(aaa","id":5}})"), "7");
}

TEST(IdAtEdges, IsFoundBehindWhatIsLong) {
  const char* const head = R"({"method":"m","params":{"id":5,"x":"aaa)";
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa"},"jsonrpc":"2.0","id":12})"), "12");
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa"},"id": "x", "jsonrpc":"2.0"})"), R"("x")");
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa"},"id":-3} )"), "-3");
}

TEST(IdAtEdges, IsNotThatOfSomethingElse) {
  const char* const head = R"({"method":"m","params":{"x":"aaa)";
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa","id":5}})"), "");
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa \"id\":5"}})"), "");
  EXPECT_EQ(FindIdAtEdges(head, R"(aaa","id":5,"y":{}})"), "");
  EXPECT_EQ(FindIdAtEdges("", ""), "");
  EXPECT_EQ(FindIdAtEdges("aaa", R"(aaa"id":)"), "");
}

}  // namespace
}  // namespace callboard::core
