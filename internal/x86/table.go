package x86

// factsTable states what operations do: names | operands | flags | registers and memory | control flow.
//
// A name may carry a number of operands (imul/1); that row then comes before the one without. Operands, a letter each in Intel order: r read,
// w written, x both, - neither (immediates, addresses). Flags: r:, w:, u: (written, undefined) and k: (written, but may keep the old value) with the letters o s z a p
// c d i t l (AC); * stands for oszapc. Registers: r:, w:, x: (both), k: (written, old value may survive; with r: also read) with a general register or
// x87, mxcsr, seg, pkru, ssp, sys, vec, xmm0, low (xmm0 to 15), all (all that xsave saves); A and D are the accumulator and rdx at the operand's size.
//
// Memory: push and pop (by operand size; pushN bytes), str:T with T of d (write [rdi]), s (read [rsi]), D (read [rdi]); at:REG/RWX/N an implicit access of
// N bytes; size:N corrects the explicit operand's size; lock: the operation may be locked; nt non-temporal; hint; addr; bit; state; masked;
// gather; scatter. Of what the manuals leave undefined the facts hold for every processor we saw: the flags of bsf and bsr are kept by an AMD EPYC of
// family 25. See apply for how they act.
const factsTable = `
mov movzx movsx movsxd movbe lea|wr
nop|---
add sub|xr|w:*|lock
adc sbb|xr|r:c w:*|lock
and or xor|xr|w:* u:a|lock
cmp|rr|w:*
test|rr|w:* u:a
inc dec|x|w:oszap|lock
neg|x|w:*|lock
not|x||lock
xchg|xx||lock
xadd|xx|w:*|lock
cmpxchg|xr|w:*|r:A k:A lock
cmpxchg8b|x|w:z|r:ax r:dx r:bx r:cx k:ax k:dx lock
cmpxchg16b|x|w:z|r:ax r:dx r:bx r:cx k:ax k:dx lock
bt|rr|w:c k:osap u:osap|bit
btc btr bts|xr|w:c k:osap u:osap|bit lock
bsf bsr|xr|w:* u:osapc k:osapc
lzcnt tzcnt|wr|w:* u:osap k:osap
popcnt|wr|w:*
crc32|xr
bswap|x
shl shr sar|xr|w:* u:a|count
rol ror|xr|w:oc|count
rcl rcr|xr|r:c w:oc|count
shld shrd|xrr|w:* u:a|count
mul|r|w:* u:szap k:szap|r:A w:AD
imul/1|r|w:* u:szap k:szap|r:A w:AD
imul/2|xr|w:* u:szap k:szap
imul/3|wr-|w:* u:szap k:szap
div idiv|r|k:* u:*|r:AD w:AD
cbw cwde cdqe||| x:ax
cwd cdq cqo||| r:ax w:dx
xlat||| r:bx r:ax k:ax xlat
lahf||r:szapc|r:ax k:ax
sahf||w:szapc|r:ax
clc stc||w:c
cmc||r:c w:c
cld std||w:d
cli sti||w:i|x:sys
clac stac||w:l|
pushf pushfd pushfq||r:*ditl|push
popf popfd popfq||w:*dtl k:i|pop
push|r||push
pop|w||pop
enter|--||enter
leave|||leave
call|r||push8|call
ret|-||pop8|ret
jmp|r|||jmp
callf|r||push16|far
jmpf|r|||far
retf|-||pop16|far
iret iretd iretq||w:*ditl|pop40|far
loop|-||x:cx|loop
loope loopne|-|r:z|x:cx|loop
jrcxz jecxz|-||r:cx|loop
syscall||r:*ditl k:*ditl|r:ax r:di r:si r:dx r:10 r:8 r:9 w:ax w:cx w:11|sys
sysenter||w:i|r:sp x:sys|sys
sysexit sysret||w:*ditl|r:cx r:11 r:dx x:sys|far
int|-|||trap
int1 int3 ud2||||trap
ud0 ud1|rr|||trap
hlt||||halt
movsb movsw movsd movsq||r:d|str:ds
cmpsb cmpsw cmpsd cmpsq||r:d w:*|str:sD
stosb stosw stosd stosq||r:d|str:d r:A
lodsb lodsw lodsd lodsq||r:d|str:s w:A
scasb scasw scasd scasq||r:d w:*|str:D r:A
insb insw insd||r:d|str:d r:dx
outsb outsw outsd||r:d|str:s r:dx
in|wr
out|rr
pause lfence mfence sfence fwait serialize endbr64 endbr32 wbnoinvd invd wbinvd|
cpuid||| r:ax r:cx w:ax w:bx w:cx w:dx
rdtsc||| w:ax w:dx r:sys
rdtscp||| w:ax w:cx w:dx r:sys
rdpmc rdmsr||| r:cx w:ax w:dx r:sys
rdpru||w:*|r:cx w:ax w:dx r:sys
wrmsr||| r:cx r:ax r:dx x:sys
xgetbv||| r:cx w:ax w:dx r:sys
xsetbv||| r:cx r:ax r:dx x:sys
rdpkru||| r:cx w:ax w:dx r:pkru
wrpkru||| r:ax r:cx r:dx w:pkru
rdrand rdseed|w|w:*
rdpid|w|| r:sys
rdfsbase rdgsbase|w|| r:seg
wrfsbase wrgsbase|r|| k:seg
swapgs||| x:seg x:sys
xbegin|-|| x:sys k:ax|tx
xend||| x:sys|tx
xabort|-|| x:sys k:ax|tx
xtest||w:*|r:sys
rdsspd rdsspq|x|| r:ssp
incsspd incsspq|r|| x:ssp
saveprevssp||w:c|x:ssp
setssbsy||| x:ssp
rstorssp clrssbsy|x|w:*|x:ssp lock0
wrssd wrssq wrussd wrussq|wr
ptwrite|r
tpause umwait|r|w:*|r:ax r:dx r:sys
umonitor|-|| r:sys
monitor monitorx||| r:ax r:cx r:dx x:sys
mwait||| r:ax r:cx x:sys
mwaitx||| r:ax r:bx r:cx x:sys
clzero||| at:ax/w/64
senduipi|r|| x:sys
clui stui uiret||| x:sys
testui||w:*|r:sys
xsusldtrk xresldtrk||| x:sys
movdiri|wr||nt
movdir64b|-r||dir64
enqcmd enqcmds|-r|w:*|dir64
clflush clflushopt clwb cldemote prefetch prefetchw prefetchwt1 prefetchnta prefetcht0 prefetcht1 prefetcht2|-||hint
fxsave fxsave64|w||size:512 r:x87 r:mxcsr r:low state
fxrstor fxrstor64|r||size:512 w:x87 w:mxcsr k:low state
xsave xsavec xsaves xsave64 xsavec64 xsaves64 xsaveopt xsaveopt64|w||size:0 r:ax r:dx r:all state
xrstor xrstors xrstor64 xrstors64|r||size:0 r:ax r:dx k:all state
ldmxcsr vldmxcsr|r||w:mxcsr
stmxcsr vstmxcsr|w||r:mxcsr
lgdt lidt|r||size:10 x:sys
sgdt sidt|w||size:10 r:sys
lldt ltr lmsw|r||x:sys
sldt str smsw|w||r:sys
lar lsl|xr|w:z|r:sys
verr verw|r|w:z|r:sys
lss lfs lgs lds les|wr||k:seg
clts rsm getsec vmlaunch vmresume vmxoff pconfig encls enclu enclv vmfunc vmcall vmrun vmmcall vmload vmsave stgi clgi skinit invlpga hreset||| x:sys k:ax k:bx k:cx k:dx k:si k:di r:ax r:bx r:cx r:dx
invlpg|-||hint x:sys
invept invvpid invpcid|rr|w:*|x:sys
vmptrld vmclear vmxon|r|w:*|x:sys
vmptrst|w||r:sys
vmread|wr|w:*|r:sys
vmwrite|rr|w:*|x:sys
loadiwkey|rr|w:*|r:xmm0 x:sys
encodekey128 encodekey256|wr|w:*|r:low k:low r:sys
aesenc128kl aesdec128kl aesenc256kl aesdec256kl|xr|w:*
aesencwide128kl aesdecwide128kl aesencwide256kl aesdecwide256kl|r|w:*|r:low k:low
blcfill blsfill blcs tzmsk blcic blsic t1mskc blcmsk blci|wr|w:* u:ap
vpxor|wrr
andn|wrr|w:* u:ap
bextr|wrr|w:* u:sap
blsi blsmsk blsr|wr|w:* u:ap
bzhi|wrr|w:* u:ap
mulx|wwr||r:dx
pdep pext sarx shlx shrx|wrr
rorx|wr-
adcx|xr|r:c w:c
adox|xr|r:o w:o
emms femms fninit|||k:x87 r:x87
fneni fndisi fnsetpm frstpm|||x:x87
3dnow|xr-||x:x87
cmpoxadd cmpnoxadd cmpbxadd cmpnbxadd cmpzxadd cmpnzxadd cmpbexadd cmpnbexadd|xxr|w:*|lock0
cmpsxadd cmpnsxadd cmppxadd cmpnpxadd cmplxadd cmpnlxadd cmplexadd cmpnlexadd|xxr|w:*|lock0
aadd aand aor axor|xr
fstp fst fist fistp fisttp fbstp|w||x:x87
fnstcw fnstsw|w||x:x87 size:2
fnstenv|w||x:x87 size:28
fnsave|w||x:x87 size:108
fldenv|r||x:x87 size:28
frstor|r||x:x87 size:108
fldcw|r||x:x87 size:2
fcomi fcomip fucomi fucomip|rr|w:*|x:x87
fcmovb fcmovnb|xr|r:c|x:x87
fcmove fcmovne|xr|r:z|x:x87
fcmovbe fcmovnbe|xr|r:cz|x:x87
fcmovu fcmovnu|xr|r:p|x:x87
fxch|xx||x:x87
fadd/1 fsub/1 fsubr/1 fmul/1 fdiv/1 fdivr/1 fcom/1 fcomp/1|r||x:x87
fadd fsub fsubr fmul fdiv fdivr faddp fsubp fsubrp fmulp fdivp fdivrp|xr||x:x87
fcom fcomp fucom fucomp|rr||x:x87
fld fild fbld fiadd ficom ficomp fidiv fidivr fimul fisub fisubr|r||x:x87
ffree ffreep|w||x:x87
f2xm1 fabs fchs fcompp fcos fdecstp fincstp fld1 fldl2e fldl2t fldlg2 fldln2 fldpi fldz fnclex fnop fpatan fprem fprem1 fptan frndint fscale fsin|||x:x87
fsincos fsqrt ftst fucompp fxam fxtract fyl2x fyl2xp1|||x:x87
movaps movapd movups movupd movdqa movdqu movd movq movss movsd_xmm movhps movhpd movlps movlpd lddqu movmskps movmskpd pmovmskb|wr
movddup movshdup movsldup movq2dq movdq2q|wr
movhlps movlhps|xr
movntps movntpd movntdq movntq movnti movntss movntsd movntdqa vmovntps vmovntpd vmovntdq vmovntdqa|wr||nt
maskmovq|rr||at:di/w/8 masked nt
maskmovdqu vmaskmovdqu|rr||at:di/w/16 masked nt
sqrtps sqrtpd rcpps rsqrtps cvtdq2pd cvtdq2ps cvtpd2dq cvtpd2pi cvtpd2ps cvtpi2pd cvtps2dq cvtps2pd cvtps2pi cvttpd2dq cvttpd2pi cvttps2dq cvttps2pi|wr
cvtsd2si cvtss2si cvttsd2si cvttss2si pabsb pabsw pabsd phminposuw aesimc|wr
pmovsxbw pmovsxbd pmovsxbq pmovsxwd pmovsxwq pmovsxdq pmovzxbw pmovzxbd pmovzxbq pmovzxwd pmovzxwq pmovzxdq|wr
sqrtss sqrtsd rcpss rsqrtss cvtpi2ps cvtsi2sd cvtsi2ss cvtsd2ss cvtss2sd|xr
pshufd pshufhw pshuflw pshufw aeskeygenassist roundps roundpd pextrb pextrw pextrd pextrq extractps|wr-
roundss roundsd|xr-
comiss comisd ucomiss ucomisd ptest|rr|w:*
pcmpestri vpcmpestri|rr-|w:*|r:ax r:dx w:cx
pcmpistri vpcmpistri|rr-|w:*|w:cx
pcmpestrm|rr-|w:*|r:ax r:dx k:xmm0
vpcmpestrm|rr-|w:*|r:ax r:dx w:xmm0
pcmpistrm|rr-|w:*|k:xmm0
vpcmpistrm|rr-|w:*|w:xmm0
blendvps blendvpd pblendvb sha256rnds2|xr||r:xmm0
extrq/3 extrq/2|xr-
insertq|xr-
addpd addps addsd addss addsubpd addsubps aesdec aesdeclast aesenc aesenclast andnpd andnps andpd andps blendpd blendps cmppd cmpps cmpsd_xmm cmpss|xr
divpd divps divsd divss dppd dpps haddpd haddps hsubpd hsubps insertps maxpd maxps maxsd maxss minpd minps minsd minss mpsadbw|xr
mulpd mulps mulsd mulss orpd orps packssdw packsswb packusdw packuswb paddb paddd paddq paddsb paddsw paddusb paddusw paddw palignr pand pandn|xr
pavgb pavgw pblendw pclmulqdq pcmpeqb pcmpeqd pcmpeqq pcmpeqw pcmpgtb pcmpgtd pcmpgtq pcmpgtw phaddd phaddsw phaddw phsubd phsubsw phsubw|xr
pinsrb pinsrd pinsrq pinsrw pmaddubsw pmaddwd pmaxsb pmaxsd pmaxsw pmaxub pmaxud pmaxuw pminsb pminsd pminsw pminub pminud pminuw pmuldq|xr
pmulhrsw pmulhuw pmulhw pmulld pmullw pmuludq por psadbw pshufb psignb psignd psignw pslld pslldq psllq psllw psrad psraw psrld psrldq psrlq psrlw|xr
psubb psubd psubq psubsb psubsw psubusb psubusw psubw punpckhbw punpckhdq punpckhqdq punpckhwd punpcklbw punpckldq punpcklqdq punpcklwd pxor|xr
sha1msg1 sha1msg2 sha1nexte sha1rnds4 sha256msg1 sha256msg2 shufpd shufps subpd subps subsd subss unpckhpd unpckhps unpcklpd unpcklps xorpd xorps|xr
gf2p8mulb gf2p8affineqb gf2p8affineinvqb|xr
vzeroupper||| k:low r:low
vzeroall||| w:low
vcomiss vcomisd vcomish vucomiss vucomisd vucomish vcomxss vcomxsd vcomxsh vucomxss vucomxsd vucomxsh vcomisbf16 vptest vtestps vtestpd|rr|w:*
kortestb kortestw kortestd kortestq ktestb ktestw ktestd ktestq|rr|w:*
vpternlogd vpternlogq vfixupimmpd vfixupimmps vfixupimmsd vfixupimmss vdbpsadbw2|xrr-
vpermi2b vpermi2w vpermi2d vpermi2q vpermi2ps vpermi2pd vpermt2b vpermt2w vpermt2d vpermt2q vpermt2ps vpermt2pd vpmadd52luq vpmadd52huq|xrr
vpdpbssd vpdpbssds vpdpbsud vpdpbsuds vpdpbusd vpdpbusds vpdpbuud vpdpbuuds vpdpwssd vpdpwssds vpdpwsud vpdpwsuds vpdpwusd vpdpwusds vpdpwuud vpdpwuuds|xrr
vdpbf16ps vdpphps vpshldvd vpshldvq vpshldvw vpshrdvd vpshrdvq vpshrdvw vfcmaddcph vfcmaddcsh vfmaddcph vfmaddcsh|xrr
vsha512msg1 vsha512msg2 vsha512rnds2 vsm3msg1 vsm3msg2 vsm3rnds2|xrr
vp4dpwssd vp4dpwssds v4fmaddps v4fnmaddps v4fmaddss v4fnmaddss|xrr||four
vp2intersectd vp2intersectq|wrr||pairk
vpgatherdd vpgatherdq vpgatherqd vpgatherqq vgatherdps vgatherdpd vgatherqps vgatherqpd|wrr||gather
vpscatterdd vpscatterdq vpscatterqd vpscatterqq vscatterdps vscatterdpd vscatterqps vscatterqpd|wr||scatter
vgatherpf0dps vgatherpf0dpd vgatherpf0qps vgatherpf0qpd vgatherpf1dps vgatherpf1dpd vgatherpf1qps vgatherpf1qpd|-||gather hint
vscatterpf0dps vscatterpf0dpd vscatterpf0qps vscatterpf0qpd vscatterpf1dps vscatterpf1dpd vscatterpf1qps vscatterpf1qpd|-||scatter hint
vmaskmovps vmaskmovpd vpmaskmovd vpmaskmovq|wrr||masked
`

// Conditions of jcc, setcc and cmovcc by the flags that they read; their rows are made from these. So are the rows of FMA (the first operand
// is read and written) and of the vector operations that factsTable does not name: the first operand is written, the others are read.
var conditions = map[string]string{
	"o": "o", "no": "o", "b": "c", "ae": "c", "e": "z", "ne": "z", "be": "cz", "a": "cz",
	"s": "s", "ns": "s", "p": "p", "np": "p", "l": "so", "ge": "so", "le": "zso", "g": "zso",
}
