// What a client's Accept and Content-Type headers allow. Pure.
#pragma once

#include <string_view>

namespace callboard::bridge {

// Whether `accept` covers the media type `type/subtype`, wildcards and q=0 included. An absent
// header (empty text) covers everything.
bool Accepts(std::string_view accept, std::string_view media_type);

// Whether a Content-Type value is JSON, whatever its parameters.
bool IsJsonContent(std::string_view content_type);

}  // namespace callboard::bridge
