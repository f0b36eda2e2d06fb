# What traffic.c sent from rank 2, once for good; the whole of it is checked by the contract tests.
file(READ ${DIRECTORY}/profile.2.json text)
file(REMOVE ${DIRECTORY}/profile.2.json)
foreach(found
    "\"peers\":\\[{\"rank\":0,\"messages\":11,\"bytes\":496},{\"rank\":1,\"messages\":5,\"bytes\":284}\\]"
    "\"MPI_Send\":{\"count\":3,[^}]*\"bytes\":200}")
  if(NOT text MATCHES "${found}")
    message(FATAL_ERROR "no ${found} in ${text}")
  endif()
endforeach()
