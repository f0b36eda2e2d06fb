# A boot sector that changes a byte in each page from FIRST to LAST, waits for WAIT steps, and writes "." to
# the first serial port after each pass.
.code16
.globl _start
_start:
        cli
        xorw %ax, %ax
        movw %ax, %ds
        lgdt descriptor
        movl %cr0, %eax
        orl $1, %eax
        movl %eax, %cr0
        ljmpl $8, $protected
.code32
protected:
        movw $0x10, %ax
        movw %ax, %ds
        inb $0x92, %al                  # the address line A20
        orb $2, %al
        outb %al, $0x92
pass:
        movl $FIRST, %eax
page:
        incb (%eax)
        addl $0x1000, %eax
        cmpl $LAST, %eax
        jl page
        movl $WAIT, %ecx
1:      decl %ecx
        jnz 1b
        movb $0x2e, %al
        movw $0x3f8, %dx
        outb %al, %dx
        jmp pass
        .balign 8
table:
        .quad 0
        .quad 0x00cf9a000000ffff        # code
        .quad 0x00cf92000000ffff        # data
descriptor:
        .word . - table - 1
        .long table
        .org 510
        .word 0xaa55
