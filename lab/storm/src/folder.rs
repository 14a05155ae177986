//! A folder, mounted through FUSE, with files that follow the rules of a devil.
//!
//! Not here: the effect of a rule on an operation (`devil`).

use crate::devil::{Devil, DevilVerb};
use fuser::{
    BackgroundSession, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Time for which the kernel remembers attributes: none.
const NEVER: Duration = Duration::ZERO;

/// The mounted folder, until dropped.
pub struct MountedFolder {
    /// Rules of the folder.
    pub devil: Devil,
    session: Option<BackgroundSession>,
}

impl MountedFolder {
    /// Mounts the folder `back` at `at`.
    pub fn new(back: &Path, at: &Path) -> io::Result<MountedFolder> {
        let devil = Devil::default();
        let files = FolderFiles {
            back: back.to_owned(),
            devil: devil.clone(),
            names: Mutex::new(vec![PathBuf::new()]),
            open: Arc::default(),
        };
        let session = fuser::spawn_mount(files, at, &Config::default())?;
        Ok(MountedFolder {
            devil,
            session: Some(session),
        })
    }
}

impl Drop for MountedFolder {
    fn drop(&mut self) {
        self.devil.clear();
        drop(self.session.take());
    }
}

#[derive(Default)]
struct OpenFolderFile {
    next: u64,
    files: HashMap<u64, Arc<File>>,
}

struct FolderFiles {
    back: PathBuf,
    devil: Devil,
    /// Paths below `back`: the inode's number less one is the index.
    names: Mutex<Vec<PathBuf>>,
    open: Arc<Mutex<OpenFolderFile>>,
}

fn keep(open: &Mutex<OpenFolderFile>, file: File) -> FileHandle {
    let mut open = open.lock().expect("no panic under this lock");
    open.next += 1;
    let number = open.next;
    open.files.insert(number, Arc::new(file));
    FileHandle(number)
}

impl FolderFiles {
    fn name(&self, ino: INodeNo) -> PathBuf {
        let names = self.names.lock().expect("no panic under this lock");
        names[ino.0 as usize - 1].clone()
    }

    fn number(&self, path: &Path) -> INodeNo {
        let mut names = self.names.lock().expect("no panic under this lock");
        let known = names.iter().position(|name| name == path);
        let at = known.unwrap_or_else(|| {
            names.push(path.to_owned());
            names.len() - 1
        });
        INodeNo(at as u64 + 1)
    }

    fn attributes(&self, path: &Path) -> io::Result<FileAttr> {
        let found = fs::symlink_metadata(self.back.join(path))?;
        Ok(of(self.number(path), &found))
    }

    fn file(&self, handle: FileHandle) -> Arc<File> {
        let open = self.open.lock().expect("no panic under this lock");
        open.files[&handle.0].clone()
    }
}

fn of(ino: INodeNo, found: &Metadata) -> FileAttr {
    let now = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: found.len(),
        blocks: found.blocks(),
        atime: now,
        mtime: found.modified().unwrap_or(now),
        ctime: found.modified().unwrap_or(now),
        crtime: now,
        kind: match found.is_dir() {
            true => FileType::Directory,
            false => FileType::RegularFile,
        },
        perm: found.mode() as u16 & 0o7777,
        nlink: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: found.blksize() as u32,
        flags: 0,
    }
}

fn empty(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for FolderFiles {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(&self.name(parent).join(name)) {
            Ok(found) => reply.entry(&NEVER, &found, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(&self.name(ino)) {
            Ok(found) => reply.attr(&NEVER, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let path = self.name(ino);
        let file = self.back.join(&path);
        let number = self.number(&path);
        self.devil.run(&path, DevilVerb::Write, move |judged| {
            if let Err(error) = judged {
                return reply.error(error);
            }
            let cut = size.map_or(Ok(()), |size| {
                OpenOptions::new().write(true).open(&file)?.set_len(size)
            });
            match cut.and_then(|()| fs::symlink_metadata(&file)) {
                Ok(found) => reply.attr(&NEVER, &of(number, &found)),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let path = self.name(parent).join(name);
        let made = fs::create_dir(self.back.join(&path));
        match made.and_then(|()| self.attributes(&path)) {
            Ok(found) => reply.entry(&NEVER, &found, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let path = self.name(parent).join(name);
        let file = self.back.join(&path);
        self.devil
            .run(&path, DevilVerb::Name, move |judged| match judged {
                Ok(_) => empty(fs::remove_file(file), reply),
                Err(error) => reply.error(error),
            });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (self.name(parent).join(name), self.name(to).join(new));
        let (old, new) = (self.back.join(&from), self.back.join(to));
        self.devil
            .run(&from, DevilVerb::Name, move |judged| match judged {
                Ok(_) => empty(fs::rename(old, new), reply),
                Err(error) => reply.error(error),
            });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let path = self.name(ino);
        let write = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let (file, open) = (self.back.join(&path), self.open.clone());
        self.devil.run(&path, DevilVerb::Name, move |judged| {
            if let Err(error) = judged {
                return reply.error(error);
            }
            match OpenOptions::new().read(true).write(write).open(file) {
                Ok(file) => reply.opened(keep(&open, file), FopenFlags::FOPEN_DIRECT_IO),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let path = self.name(parent).join(name);
        let (file, number, open) = (self.back.join(&path), self.number(&path), self.open.clone());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        options
            .create_new(flags & libc::O_EXCL != 0)
            .truncate(flags & libc::O_TRUNC != 0);
        self.devil.run(&path, DevilVerb::Name, move |judged| {
            if let Err(error) = judged {
                return reply.error(error);
            }
            match options
                .open(file)
                .and_then(|file| Ok((file.metadata()?, file)))
            {
                Ok((found, file)) => {
                    let (found, handle) = (of(number, &found), keep(&open, file));
                    let flags = FopenFlags::FOPEN_DIRECT_IO;
                    reply.created(&NEVER, &found, Generation(0), handle, flags);
                }
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.file(handle);
        let size = size as usize;
        self.devil
            .run(&self.name(ino), DevilVerb::Read, move |judged| {
                if let Err(error) = judged {
                    return reply.error(error);
                }
                let mut bytes = vec![0; size];
                match file.read_at(&mut bytes, offset) {
                    Ok(read) => reply.data(&bytes[..read]),
                    Err(error) => reply.error(error.into()),
                }
            });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.devil.forgets(&self.name(ino)) {
            return reply.written(data.len() as u32);
        }
        let file = self.file(handle);
        let data = data.to_vec();
        self.devil
            .run(&self.name(ino), DevilVerb::Write, move |judged| {
                if let Err(error) = judged {
                    return reply.error(error);
                }
                match file.write_all_at(&data, offset) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(error) => reply.error(error.into()),
                }
            });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // The machine itself has no power cut: written data is as durable as it will be.
        self.devil.run(
            &self.name(ino),
            DevilVerb::Flush,
            move |judged| match judged {
                Ok(_) => reply.ok(),
                Err(error) => reply.error(error),
            },
        );
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.devil.run(
            &self.name(ino),
            DevilVerb::Flush,
            move |judged| match judged {
                Ok(_) => reply.ok(),
                Err(error) => reply.error(error),
            },
        );
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut open = self.open.lock().expect("no panic under this lock");
        open.files.remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let folder = self.name(ino);
        let entries = fs::read_dir(self.back.join(&folder))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        for (at, name) in names.iter().enumerate().skip(offset as usize) {
            let Ok(found) = self.attributes(&folder.join(name)) else {
                continue;
            };
            if reply.add(found.ino, at as u64 + 1, found.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (blocks, files) = (1 << 20, 1 << 20);
        reply.statfs(blocks, blocks, blocks, files, files, 4096, 255, 4096);
    }
}
