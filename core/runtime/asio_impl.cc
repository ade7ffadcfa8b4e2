// Holds Asio's separately compiled code, so that every other unit only declares it.
#include <boost/asio/impl/src.hpp>
