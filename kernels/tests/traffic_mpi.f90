! Known traffic for the tests of the profile, through `use mpi`: the same as in traffic.c.
program traffic
  use mpi
  implicit none
  integer :: rank, ranks, next, previous, i, error
  integer :: seven(7), seven_in(7), four(4), four_in(4), three(3)
  integer, allocatable :: out(:), in(:)
  double precision :: ten(10), ten_in(10), memory(5), five(5), x, total
  character(len=100) :: text
  integer :: requests(2)
  integer :: reversed
  integer :: window
  integer(kind=MPI_ADDRESS_KIND) :: bytes, offset

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  next = modulo(rank + 1, ranks)
  previous = modulo(rank - 1, ranks)

  ten = 0
  do i = 1, 5
    call MPI_Sendrecv(ten, 10, MPI_DOUBLE_PRECISION, next, 0, ten_in, 10, MPI_DOUBLE_PRECISION, previous, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end do
  call MPI_Send(ten, 10, MPI_DOUBLE_PRECISION, MPI_PROC_NULL, 0, MPI_COMM_WORLD, error)

  seven = 0
  do i = 1, 3
    call MPI_Irecv(seven_in, 7, MPI_INTEGER, next, 1, MPI_COMM_WORLD, requests(1), error)
    call MPI_Isend(seven, 7, MPI_INTEGER, previous, 1, MPI_COMM_WORLD, requests(2), error)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
  end do

  four = 0
  call MPI_Recv_init(four_in, 4, MPI_INTEGER, previous, 2, MPI_COMM_WORLD, requests(1), error)
  call MPI_Send_init(four, 4, MPI_INTEGER, next, 2, MPI_COMM_WORLD, requests(2), error)
  do i = 1, 6
    call MPI_Startall(2, requests, error)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
  end do
  call MPI_Request_free(requests(1), error)
  call MPI_Request_free(requests(2), error)

  text = ''
  call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, reversed, error)
  do i = 1, 2
    if (rank == ranks - 1) call MPI_Send(text, 100, MPI_CHARACTER, 1, 3, reversed, error)
    if (rank == ranks - 2) call MPI_Recv(text, 100, MPI_CHARACTER, 0, 3, reversed, MPI_STATUS_IGNORE, error)
  end do
  memory = 0
  five = 0
  bytes = 40
  offset = 0
  call MPI_Win_create(memory, bytes, 8, MPI_INFO_NULL, reversed, window, error)
  call MPI_Win_fence(0, window, error)
  if (rank == 0) call MPI_Put(five, 5, MPI_DOUBLE_PRECISION, 0, offset, 5, MPI_DOUBLE_PRECISION, window, error)
  call MPI_Win_fence(0, window, error)
  call MPI_Win_free(window, error)
  call MPI_Comm_free(reversed, error)

  x = 1
  do i = 1, 4
    call MPI_Allreduce(x, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end do
  three = 0
  allocate (out(2 * ranks), in(2 * ranks))
  out = 0
  in = 0
  call MPI_Bcast(three, 3, MPI_INTEGER, 1, MPI_COMM_WORLD, error)
  call MPI_Alltoall(out, 2, MPI_INTEGER, in, 2, MPI_INTEGER, MPI_COMM_WORLD, error)
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_INTEGER, MPI_COMM_WORLD, error)
  call MPI_Pcontrol(3)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Pcontrol(1)
  call MPI_Finalize(error)
end program
