# Seats, tool lists, search and argument checks.
callboard_test(unit_server_catalog
  SOURCES catalog_seats_test.cc catalog_tools_test.cc catalog_search_test.cc
          catalog_arguments_test.cc catalog_names_test.cc
  DEPS test_main server_catalog server_search core_mcp core_runtime)
