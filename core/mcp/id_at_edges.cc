// Implementation of FindIdAtEdges.
#include "core/mcp/id_at_edges.h"

#include <algorithm>

#include "core/mcp/json.h"

namespace callboard::core {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kMember = "\"id\":";

// A string or an integer with something behind it.
std::string_view IdAtBegin(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  if (text.starts_with('"')) {
    const size_t end = text.find('"', 1);
    return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
  }
  const size_t end = text.find_first_not_of("-0123456789");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

}  // namespace

std::string FindIdAtEdges(std::string_view head, std::string_view tail) {
  std::string id;
  // The head is cut off somewhere; what stands before that is found all the same.
  (void)ForEachMember(head, [&](const JsonMember& member) {
    if (member.Is("id")) id = member.value;
    return id.empty();
  });
  if (!id.empty()) return id;
  const size_t at = tail.rfind(kMember);
  if (at == std::string_view::npos) return {};
  // Of the message itself, if nothing but its own end follows.
  tail.remove_prefix(at + kMember.size());
  const bool nested =
      tail.find('{') != std::string_view::npos || std::count(tail.begin(), tail.end(), '}') != 1;
  return nested ? std::string() : std::string(IdAtBegin(tail));
}

}  // namespace callboard::core
