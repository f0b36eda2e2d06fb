# Four threads, 2000 messages each, none lost between them.
file(READ ${DIRECTORY}/profile.1.json text)
file(REMOVE ${DIRECTORY}/profile.1.json)
if(NOT text MATCHES "\"peers\":\\[{\"rank\":1,\"messages\":8000,\"bytes\":64000}\\]")
  message(FATAL_ERROR "other messages in ${text}")
endif()
