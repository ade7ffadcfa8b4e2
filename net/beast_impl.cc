// Holds Beast's separately compiled code, so that every other unit only declares it.
#include <boost/beast/src.hpp>
